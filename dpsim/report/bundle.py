"""Bundles: the files of a command, rendered beside their folder and moved in when complete."""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core.record import Refused
from dpsim.report import canonical_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: what a spreadsheet takes for the beginning of a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Bundle:
    """A folder that is being filled: one way to write each kind of file."""

    folder: Path

    def text(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8", newline="\n")

    def json(self, name: str, document: Any) -> None:
        self.text(name, canonical_json(document) + "\n")

    def csv(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """A line per row, numbers to their last digit; text that a spreadsheet would run is
        neutralised."""
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with open(self.folder / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([neutral(column) for column in columns])
            writer.writerows([[neutral(row.get(column)) for column in columns] for row in rows])

    def figure(self, png: str, svg: str, make: Callable[[], Figure]) -> str:
        """Draw into both files; returns the SVG."""
        from dpsim.report.figures import draw

        draw(make, self.folder / png, self.folder / svg)
        return (self.folder / svg).read_text(encoding="utf-8")


def write_bundle(out: Path, names: Sequence[str], fill: Callable[[Bundle], None]) -> None:
    """Have `fill` write the files `names`, and move them into folder `out`; none of them is ever
    there half-written.

    Raises Refused if something that is no folder (or no file) is in the way.
    """
    _refuse(out, names)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".dpsim-", dir=out.parent))
    except OSError as error:
        raise OSError(f"--out {out}: cannot write there: {error.strerror}") from None
    try:
        fill(Bundle(temporary))
        out.mkdir(exist_ok=True)
        for name in names:
            os.replace(temporary / name, out / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _refuse(out: Path, names: Sequence[str]) -> None:
    for place in (out, *out.parents):
        if place.exists() and not place.is_dir():
            raise Refused(f"--out {out}: {place} is a file, and a folder is needed")
    for name in names:
        if (out / name).is_dir():
            raise Refused(
                f"--out {out}: {out / name} is a folder, and a file is to be written there"
            )


def neutral(value: Any) -> Any:
    """`value` so that no spreadsheet takes it for a formula; numbers stay numbers."""
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA):
        return "'" + value
    return value
