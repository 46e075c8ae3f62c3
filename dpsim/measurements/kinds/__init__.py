"""Kinds of files that people have: one module per kind; the folder is the list.

Contract.  A plug-in module of this folder holds one `Kind`: it knows its files by content, not by
name, and says what is taken from one, what is assumed beside it and what is ignored, line by line.
Files are untrusted: they are read through `dpsim.measurements.readers`, which limits their size,
and nothing in them is ever run.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dpsim.core import plugins
from dpsim.core.files import Unreadable, text_of
from dpsim.core.outputs import marked
from dpsim.core.record import Refused
from dpsim.core.yamlfile import dump_yaml, located
from dpsim.measurements.readers import HEAD_BYTES, content, whole_json

How = Literal["taken", "assumed", "ignored"]
Makes = Literal["", "machine", "scenario", "model", "measurement", "trace"]
HOWS: tuple[How, ...] = ("taken", "assumed", "ignored")
#: what stands in a scenario where the file says nothing and nobody has said it; `dpsim run` refuses
#: the name as one that it does not know
NO_MODEL, NO_MACHINE = "NAME-YOUR-MODEL", "NAME-YOUR-MACHINE"
#: entries of one account; further ones are counted
MAX_ENTRIES = 500


@dataclass(frozen=True)
class Entry:
    """What became of one thing of a file: `how`, in words, and the line it stands on (0: none)."""

    how: How
    text: str
    line: int = 0


@dataclass(frozen=True)
class Account:
    """What a file is and what became of it.

    file      its name
    kind      what it is, as a user calls it
    entries   what was taken, assumed and ignored
    makes     what `document` is: a machine, a scenario, a model's section; "" where there is none
    findings  what is wrong with what the file describes, or is not modelled: exit code 1
    advice    the command or key that it is for
    """

    file: str
    kind: str
    entries: tuple[Entry, ...]
    makes: Makes = ""
    document: Mapping[str, Any] | None = None
    findings: tuple[str, ...] = ()
    advice: str = ""

    @property
    def whole(self) -> Mapping[str, Any]:
        """The document as it stands in a file: a model's section under its key."""
        found = self.document or {}
        return {"model": found} if self.makes == "model" else found


@dataclass(frozen=True)
class Wishes:
    """What the user says beside the file; empty where nothing.

    model    a bundled model, a configuration's file, or a model section in YAML's flow style
    machine  a machine, or its file: what the file does not say of nodes
    device   which GPU it is
    part     of a file that describes several, which
    name     what the result is called
    beside   the folder that the result is written to, for files it names
    """

    model: str = ""
    machine: str = ""
    device: str = ""
    part: str = ""
    name: str = ""
    beside: Path = Path()


class Kind:
    """Contract of this folder."""

    #: what a file of it is, as a user calls it
    title: str = ""
    #: others that may claim the same file are asked first where theirs is lower
    rank: int = 50

    def claims(self, path: Path, head: bytes) -> bool:
        """Whether the file is of this kind; `head` is its first HEAD_BYTES, decompressed."""
        raise NotImplementedError

    def read(self, path: Path, wanted: Wishes) -> Account:
        """What becomes of the file; Refused where it is not right."""
        raise NotImplementedError


CONTRACT = Kind


def kinds() -> tuple[Kind, ...]:
    """One of every plug-in of this folder, those that are asked first in front."""
    found: list[Kind] = []
    for _, cls in plugins.usable("kinds"):
        try:
            with plugins.asked(cls, "making one"):
                found.append(cls())
        except Refused as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
    return tuple(sorted(found, key=lambda kind: kind.rank))


#: keys that scenarios begin with
_SCENARIO = re.compile(r"^(model|cluster|strategy|batch):", re.MULTILINE)


def kind_of(path: Path) -> Kind:
    """What the file at `path` is; FileRefused, naming what is known, where it is nothing known."""
    try:
        head = content(path, HEAD_BYTES)
        for kind in kinds():
            if kind.claims(path, head):
                return kind
        if len(set(_SCENARIO.findall(head_text(head)))) > 1:
            raise Refused("is a scenario: dpsim run plays it")
        whole_json(path, head)
        known = ", ".join(kind.title for kind in kinds())
        raise Refused(f"is no file that dpsim knows; it knows: {known}")
    except Refused as error:
        raise located(error, path.name, {}) from None


def account_of(path: Path, wanted: Wishes) -> Account:
    """What becomes of the file at `path`; FileRefused, naming the file, where nothing can."""
    kind = kind_of(path)
    try:
        return kind.read(path, wanted)
    except Refused as error:
        raise located(error, path.name, {}) from None


def head_text(head: bytes) -> str:
    """The first bytes of a file as text, "" where it is binary; a character cut in two is lost."""
    if b"\0" in head:
        return ""
    try:
        return text_of(head, "ignore").replace("\r\n", "\n")
    except Unreadable:
        return ""


def text_made(account: Account) -> str:
    """The document of `account` as YAML, what became of the file above it as comments."""
    lines = [f"# Made of {_plain(account.file)} ({account.kind})."]
    for how in HOWS:
        told = [entry for entry in account.entries if entry.how == how]
        lines += [f"# {how}:"] if told else []
        lines += [f"#   {_where(entry)}{_plain(entry.text)}" for entry in told]
    lines += [f"# finding: {_plain(found)}" for found in account.findings]
    return marked("import", "\n".join(lines) + "\n" + dump_yaml(account.whole))


def capped(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """At most MAX_ENTRIES of them, and how many more there are."""
    more = len(entries) - MAX_ENTRIES
    if more <= 0:
        return tuple(entries)
    return (*entries[:MAX_ENTRIES], Entry("ignored", f"and {more:,} further lines like these"))


def _where(entry: Entry) -> str:
    return f"line {entry.line}: " if entry.line else ""


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
