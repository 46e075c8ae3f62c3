"""Bundles: the files of a command, made in memory and written as one set."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core.lean import dataclass
from dpsim.core.outputs import write_set
from dpsim.report import canonical_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: what a spreadsheet takes for the beginning of a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Bundle:
    """Files that are being made (name -> bytes): one way to make each kind."""

    files: dict[str, bytes] = field(default_factory=dict)

    def text(self, name: str, text: str) -> None:
        self.files[name] = text.encode()

    def json(self, name: str, document: Any) -> None:
        self.text(name, canonical_json(document) + "\n")

    def csv(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """A line per row, numbers to their last digit; text that a spreadsheet would run is
        neutralised."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([neutral(column) for column in columns])
        writer.writerows([[neutral(row.get(column)) for column in columns] for row in rows])
        self.text(name, text.getvalue())

    def figure(self, png: str, svg: str, make: Callable[[], Figure]) -> str:
        """Draw into both files; returns the SVG."""
        from dpsim.report.figures import draw

        pixels, lines = io.BytesIO(), io.BytesIO()
        draw(make, pixels, lines)
        self.files.update({png: pixels.getvalue(), svg: lines.getvalue()})
        return self.files[svg].decode()


def write_bundle(out: Path, fill: Callable[[Bundle], None]) -> list[str]:
    """Have `fill` make files, and write them into folder `out` as `write_set` does; their names."""
    bundle = Bundle()
    fill(bundle)
    write_set(out, bundle.files)
    return list(bundle.files)


def neutral(value: Any) -> Any:
    """`value` so that no spreadsheet takes it for a formula; numbers stay numbers."""
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA):
        return "'" + value
    return value
