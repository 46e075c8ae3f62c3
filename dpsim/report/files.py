"""Files: everything a run writes, rendered beside its place and moved in when it is complete."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core.record import Refused
from dpsim.predict.answer import Answer
from dpsim.predict.point import Point
from dpsim.report import canonical_json
from dpsim.report.tables import FILES

if TYPE_CHECKING:
    from dpsim.predict.prediction import Prediction

#: what a spreadsheet takes for the beginning of a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_all(prediction: Prediction, out: Path) -> None:
    """Write the files of `prediction` into folder `out`; see `write_into`."""
    write_into(out, FILES, lambda folder: _render(prediction, folder))


def write_into(out: Path, names: Sequence[str], render: Callable[[Path], None]) -> None:
    """Have `render` write the files `names` and move them into folder `out`; none of them is ever
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
        render(temporary)
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


def _render(prediction: Prediction, folder: Path) -> None:
    from dpsim.report.curve import draw_curve
    from dpsim.report.page import page

    (folder / "prediction.json").write_text(
        canonical_json(prediction.document) + "\n", encoding="utf-8", newline="\n"
    )
    write_csv(prediction.answer, folder / "points.csv")
    draw_curve(prediction, folder / "curve.png", folder / "curve.svg")
    svg = (folder / "curve.svg").read_text(encoding="utf-8")
    (folder / "index.html").write_text(page(prediction, svg), encoding="utf-8", newline="\n")


def write_csv(answer: Answer, path: Path) -> None:
    """The points as a table, one row each; text that a spreadsheet would run is neutralised."""
    import pandas as pd

    measured = {at.ranks: at for at in answer.measured}
    rows = []
    for point in answer.points:
        row = flat(point)
        at = measured.pop(point.ranks, None) if isinstance(point, Point) else None
        if at is not None:
            row |= {f"measured_{key}": getattr(at, key) for key in ("step_time_s", "error", "role")}
        rows.append({neutral(key): neutral(value) for key, value in row.items()})
    pd.DataFrame(rows).to_csv(path, index=False, lineterminator="\n", encoding="utf-8")


def flat(point: Mapping[str, Any]) -> dict[str, Any]:
    """One point without nesting."""
    row: dict[str, Any] = {}
    for key, value in point.items():
        if key == "set":
            row |= {f"set {name}": _plain(item) for name, item in value.items()}
        elif key == "memory_parts":
            row |= {f"memory {name} [B]": size for name, size in value.items()}
        else:
            row[key] = "; ".join(value) if key == "interval_causes" else _plain(value)
    return row


def _plain(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def neutral(value: Any) -> Any:
    """`value` so that no spreadsheet takes it for a formula; numbers stay numbers."""
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA):
        return "'" + value
    return value
