"""Pages: one self-contained file for every answer, with figures that can be asked.

A page is a value (`Page`) of sections, whose parts are words, tables and charts.  A chart is plain
data (`charts`), which the page's own script draws as SVG; script and style are the only ones that
its content security policy lets run, by their hashes, and nothing is fetched.  Names that users
gave are text wherever they appear: in HTML they are escaped, in the data `<`, `>` and `&` are
written as `\\u003c` and so on, and the script makes text nodes of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol

from dpsim.core.lean import dataclass
from dpsim.report.text import clean

if TYPE_CHECKING:
    from markupsafe import Markup

#: kinds of charts -> the scripts that draw them, after base.js
_SCRIPTS = {
    "lines": ("lines",),
    "bars": ("bars",),
    "ranges": ("bars",),
    "timeline": ("timeline",),
    "grid": ("lines", "bars", "grid"),
}
#: characters that could end a script element, and those that are line ends in old JavaScript
_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


class PagePart(Protocol):
    """What a section is made of."""

    def html(self) -> Markup:
        """Its elements; everything that users named is escaped."""
        ...


#: letters of a name that stays in one line
_SHORT = 16


@dataclass(frozen=True)
class Words:
    """A list of sentences; warnings have a mark beside them."""

    lines: Sequence[str]
    warning: bool = False

    def html(self) -> Markup:
        kind = ' class="warning"' if self.warning else ""
        items = _joined(_filled("<li>{}</li>", line) for line in self.lines)
        return _filled(f"<ul{kind}>{{}}</ul>", items)


@dataclass(frozen=True)
class Sheet:
    """A table that can be sorted; `left` are the headers of columns of words."""

    columns: tuple[Sequence[str], Sequence[Sequence[str]]]
    left: Sequence[str] = ()
    label: str = "table"

    def html(self) -> Markup:
        heads, rows = self.columns
        kinds = [
            _kind([head, *(row[n] for row in rows)]) if head in self.left else ""
            for n, head in enumerate(heads)
        ]
        head = _joined(
            _filled(f'<th scope="col"{kind}>{{}}</th>', name)
            for kind, name in zip(kinds, heads, strict=True)
        )
        body = _joined(_filled("<tr>{}</tr>\n", _cells(row, kinds)) for row in rows)
        return _filled(
            '<div class="card" tabindex="0" role="region" aria-label="{}"><table class="{}">'
            "<thead><tr>{}</tr></thead>\n<tbody>{}</tbody></table></div>",
            self.label, _crowded(len(heads)), head, body,
        )  # fmt: skip


def _kind(words: Sequence[str]) -> str:
    """How a column of `words` is set: one of short ones needs no room for lines."""
    short = all(len(word) <= _SHORT for word in words)
    return f' class="text{" short" * short}"'


def _crowded(columns: int) -> str:
    """How a table is set on paper, where every column has to find room: smaller from eleven
    columns on, and from seventeen with words broken anywhere."""
    return "" if columns <= 10 else "many" if columns <= 16 else "many crowd"


def _cells(row: Sequence[str], kinds: Sequence[str]) -> Markup:
    """A row's cells; the first one names the row."""
    tags = ['th scope="row"', *["td"] * (len(row) - 1)]
    return _joined(
        _filled(f"<{tag}{kind}>{{}}</{tag[:2]}>", cell)
        for tag, kind, cell in zip(tags, kinds, row, strict=True)
    )


@dataclass(frozen=True)
class Code:
    """Text of a fixed width."""

    text: str

    def html(self) -> Markup:
        return _filled("<pre>{}</pre>", self.text)


@dataclass(frozen=True)
class Chart:
    """A figure: its name in the page's data, its caption, and what `charts.py` made."""

    name: str
    caption: str
    spec: Mapping[str, Any]

    def html(self) -> Markup:
        return _filled(
            '<figure class="card" data-figure="{}"><figcaption>{}</figcaption></figure>',
            self.name, self.caption,
        )  # fmt: skip


@dataclass(frozen=True)
class SideBySide:
    """Charts that stand beside one another where there is room."""

    charts: Sequence[Chart]

    def html(self) -> Markup:
        return _filled('<div class="pair">{}</div>', _joined(c.html() for c in self.charts))


@dataclass(frozen=True)
class Section:
    """A heading and its parts; what is empty is left out."""

    title: str
    parts: Sequence[PagePart]


@dataclass(frozen=True)
class Page:
    """A page.

    title     of the window
    name      of what it is about; `about` says what that is, in a line
    headline  the answer in a sentence
    footer    what the numbers mean and where all of them are
    pictures  where a reader without scripts finds pictures: "", or ", curve.svg has the curve"
    """

    title: str
    name: str
    sections: Sequence[Section]
    footer: str
    about: str = ""
    headline: str = ""
    pictures: str = ""
    charts: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        found = {one.name: one.spec for one in _charts(p for s in self.sections for p in s.parts)}
        object.__setattr__(self, "charts", found)

    def render(self) -> str:
        """The file."""
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup

        style, script = _style(), _script(frozenset(_kinds(self.charts.values())))
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        return environment.from_string(_source("page.html.j2")).render(
            page=self,
            style=Markup(style), style_hash=_hash(style),
            script=Markup(script), script_hash=_hash(script),
            data=Markup(packed(self.charts)),
        )  # fmt: skip


def _charts(parts: Iterable[PagePart]) -> Iterable[Chart]:
    for part in parts:
        if isinstance(part, Chart):
            yield part
        elif isinstance(part, SideBySide):
            yield from part.charts


def _kinds(specs: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for spec in specs:
        yield from (frame["kind"] for frame in spec.get("frames", (spec,)))


def packed(data: Any) -> str:
    """`data` as JSON that may stand inside a script element; numbers to seven digits."""
    text = json.dumps(_rounded(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


def _rounded(data: Any) -> Any:
    if isinstance(data, float):
        return float(f"{data:.7g}")
    if isinstance(data, Mapping):
        return {str(key): _rounded(item) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return [_rounded(item) for item in data]
    return data


# -- what pages are made of -----------------------------------------------------------------------


def _source(name: str) -> str:
    return (resources.files("dpsim.report.pages") / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return re.sub(r"\n\s*", "\n", _source("page.css"))


@cache
def _script(kinds: frozenset[str]) -> str:
    """base.js, what draws these kinds, and tables.js, which begins; without margins, comments."""
    names = dict.fromkeys(name for kind in sorted(kinds) for name in _SCRIPTS[kind])
    text = "\n".join(_source(f"{name}.js") for name in ("base", *names, "tables"))
    return re.sub(r"\n(?:[ \t]+|//[^\n]*\n)+", "\n", "\n" + text)


def _hash(text: str) -> str:
    """How a content security policy names an inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _filled(template: str, *values: Any) -> Markup:
    from markupsafe import Markup

    return Markup(template).format(*values)


def _joined(parts: Iterable[Markup]) -> Markup:
    from markupsafe import Markup

    return Markup("").join(parts)


def warned(warnings: Sequence[str]) -> Words:
    """Warnings, each once, as a part of a page; none is left out."""
    return Words([clean(text) for text in dict.fromkeys(warnings)], warning=True)
