"""Strict YAML: what is read is what is written, or it is refused with its line.

The subset is one document of mappings, lists and scalars under the YAML 1.2 core schema, so
``no``, ``1:30`` and ``0x10`` are text, ``1e9`` is a number, and ``0400`` is refused.  There are
no aliases, tags, merge keys, directives or second documents.  JSON is a subset.

>>> loads("cluster:\\n  nodes: 16\\n", "x.yaml")
({'cluster': {'nodes': 16}}, {(): 1, ('cluster',): 1, ('cluster', 'nodes'): 2})
>>> loads("a: 1\\na: 2\\n", "x.yaml")
Traceback (most recent call last):
    ...
dpsim.core.yamlfile.FileRefused: x.yaml:2: a: is given twice; first on line 1
>>> dump_yaml({"name": "no", "peak": 1e9})
"name: 'no'\\npeak: 1000000000.0\\n"
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dpsim.core.files import Unreadable, read_text
from dpsim.core.record import Refused, dotted

MAX_BYTES = 10_000_000
MAX_LEVELS = 32
MAX_NODES = 200_000
MAX_DIGITS = 30

Path_ = tuple[str | int, ...]
Lines = dict[tuple[str | int, ...], int]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# What YAML forbids raw, and the line breaks that editors do not count (NEL, LS, PS).
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"
)
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|NaN|-?Infinity")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class FileRefused(Refused):
    """A refusal inside a file; its text is ``file:line: dotted.path: message``."""

    def __init__(
        self, message: str, path: Path_ = (), *, shown: str = "", line: int | None = None
    ) -> None:
        super().__init__(message, path)
        self.shown = shown
        self.line = line

    def __str__(self) -> str:
        place = self.shown if self.line is None else f"{self.shown}:{self.line}"
        parts = (place, dotted(self.path), self.message)
        return _printable(": ".join(part for part in parts if part))


def located(error: Refused, shown: str, lines: Mapping[Path_, int]) -> FileRefused:
    """`error` with its file and the line of the longest part of its path that the file has."""
    if isinstance(error, FileRefused):
        return error
    prefixes = (error.path[:size] for size in range(len(error.path), -1, -1))
    line = next((lines[prefix] for prefix in prefixes if prefix in lines), None)
    return FileRefused(error.message, error.path, shown=shown, line=line)


def load(path: Path, shown: str | None = None) -> tuple[Any, Lines]:
    """The data of the file at `path` and the line of every key and item; FileRefused otherwise."""
    name = str(path) if shown is None else shown
    try:
        text = read_text(path, MAX_BYTES)
    except Unreadable as error:
        raise FileRefused(error.message, shown=name, line=error.line) from None
    return loads(text, name)


def loads(text: str, shown: str) -> tuple[Any, Lines]:
    """As `load`, for the `text` of a file that errors call `shown`."""
    text = text.removeprefix("\ufeff")
    bad = _FORBIDDEN.search(text)
    if bad is not None:
        line = text.count("\n", 0, bad.start()) + 1
        message = f"holds the control character U+{ord(bad.group()):04X}"
        raise FileRefused(message, shown=shown, line=line)
    reader = _Reader(shown)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.YAMLError as error:
        raise _syntax(error, shown) from None
    if not reader.documents:
        raise FileRefused("is empty", shown=shown)
    return reader.root, reader.lines


def _syntax(error: yaml.YAMLError, shown: str) -> FileRefused:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if "cannot start any token" in problem:
        problem += " (tabs do not indent; quote text that starts with @, ` or %)"
    line = None if mark is None else mark.line + 1
    return FileRefused(f"not valid YAML: {' '.join(problem.split())}", shown=shown, line=line)


@dataclass
class _Frame:
    """An open mapping or list."""

    data: dict[str | int, Any] | list[Any]
    path: Path_
    key: str | int | None = None  # the key that waits for its value
    seen: dict[str, int] = field(default_factory=dict)  # key as text: its line


class _Reader:
    """Builds the data from parser events with a stack of its own (no recursion)."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.root: Any = None
        self.lines: Lines = {}
        self.documents = 0
        self.nodes = 0
        self.stack: list[_Frame] = []

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._document(event, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self.stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            self._node(event, line)

    def _refuse(self, message: str, line: int, path: Path_ | None = None) -> FileRefused:
        where = self._next_path() if path is None else path
        return FileRefused(message, where, shown=self.shown, line=line)

    def _next_path(self) -> Path_:
        if not self.stack:
            return ()
        top = self.stack[-1]
        if isinstance(top.data, list):
            return (*top.path, len(top.data))
        return top.path if top.key is None else (*top.path, top.key)

    def _document(self, event: yaml.DocumentStartEvent, line: int) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self._refuse("a second document starts here; only one is accepted", line)
        if event.version or event.tags:
            raise self._refuse("directives (%) are not accepted", line)

    def _node(self, event: Any, line: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._refuse(f"more than {MAX_NODES:,} values", line)
        if isinstance(event, yaml.AliasEvent):
            raise self._refuse("aliases (*) are not accepted; write the value out", line)
        if event.anchor is not None:
            raise self._refuse("anchors (&) are not accepted; write the value out", line)
        if event.tag is not None:
            raise self._refuse("tags (!) are not accepted", line)
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.data, dict) and top.key is None:
            self._key(top, event, line)
        elif isinstance(event, yaml.ScalarEvent):
            self._put(self._scalar(event, line), line)
        else:
            self._open([] if isinstance(event, yaml.SequenceStartEvent) else {}, line)

    def _key(self, top: _Frame, event: Any, line: int) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refuse("a mapping or list cannot be a key", line)
        if event.style in (None, "") and event.value == "<<":
            raise self._refuse("merge keys (<<) are not accepted; write the keys out", line)
        key = self._scalar(event, line)
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            raise self._refuse(f"the key {event.value[:60]!r} is not text; put it in quotes", line)
        path = (*top.path, key)
        if str(key) in top.seen:
            first = top.seen[str(key)]
            raise self._refuse(f"is given twice; first on line {first}", line, path)
        top.seen[str(key)] = line
        top.key = key
        self.lines[path] = line

    def _scalar(self, event: Any, line: int) -> Any:
        if event.style not in (None, ""):
            return event.value
        try:
            return _resolve(event.value)
        except ValueError as error:
            raise self._refuse(str(error), line) from None

    def _open(self, data: dict[str | int, Any] | list[Any], line: int) -> None:
        if len(self.stack) >= MAX_LEVELS:
            raise self._refuse(f"more than {MAX_LEVELS} levels", line, ())
        path = self._next_path()
        self._put(data, line)
        self.stack.append(_Frame(data, path))

    def _put(self, value: Any, line: int) -> None:
        self.lines.setdefault(self._next_path(), line)
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        if isinstance(top.data, list):
            top.data.append(value)
        elif top.key is not None:
            top.data[top.key] = value
            top.key = None


def _resolve(text: str) -> Any:
    """The value of unquoted `text` in the YAML 1.2 core schema; ValueError where it misleads."""
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text!r} is not finite")
    if not _FLOAT.fullmatch(text):
        return text
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        raise ValueError(f"{text[:60]!r} starts with 0; drop the zeros, or put text in quotes")
    if _INT.fullmatch(text):
        if len(digits) > MAX_DIGITS:
            raise ValueError(f"{text[:60]!r} has more than {MAX_DIGITS} digits")
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:60]!r} is out of range")
    return number


def _printable(text: str) -> str:
    """`text` on one line, with what a terminal would obey written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class _Dumper(yaml.SafeDumper):
    """Block style; every string that `loads` would read as something else is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text_node(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=_style(value))


def _style(value: str) -> str | None:
    if not value.isprintable():
        return '"'
    try:
        return None if _resolve(value) is value else "'"
    except ValueError:
        return "'"


_Dumper.add_representer(str, _text_node)


def dump_yaml(data: Any) -> str:
    """Plain `data` as YAML in block style, in its own order, that `loads` reads back equal.

    TypeError or ValueError for what the subset cannot say.
    """
    text: str = yaml.dump(
        _plain(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9
    )
    return text.removesuffix("...\n") if text.endswith("\n...\n") else text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if len({str(key) for key in value}) != len(value):
            raise ValueError("two keys are the same text")
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return _plain_int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} is not finite")
        return float(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def _plain_int(value: int) -> int:
    if abs(value) >= 10**MAX_DIGITS:
        raise ValueError(f"a whole number has more than {MAX_DIGITS} digits")
    return int(value)


def _plain_key(key: Any) -> str | int:
    if isinstance(key, str):
        return str(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return _plain_int(key)
    raise TypeError(f"{type(key).__name__} is not a key")
