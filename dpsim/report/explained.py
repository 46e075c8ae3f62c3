"""What `dpsim explain` writes: its document, the timeline as pictures and as a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpsim.core.record import Refused
from dpsim.predict.document import to_json
from dpsim.report import canonical_json
from dpsim.report.files import write_into
from dpsim.report.trace import Played, played, write_trace

if TYPE_CHECKING:
    from dpsim.predict.explanation import Explanation
    from dpsim.predict.prediction import Prediction

FILES = (
    "explanation.json",
    "trace.json",
    "pipeline.png",
    "pipeline.svg",
    "arrivals.png",
    "arrivals.svg",
)


def last_step(prediction: Prediction) -> Played:
    """The last played step of the last point that has a number, for traces and pictures.

    Raises Refused where no point has one.
    """
    pairs = zip(prediction.cases, prediction.played, strict=True)
    found = [(case, made) for case, made in pairs if made is not None]
    if not found:
        raise Refused("no point could be computed, so there is no timeline to write")
    case, made = found[-1]
    name = prediction.answer.name
    return played(made.timeline.last, name, case.device.name if case.device else None)


def write_explanation(found: Explanation, shown: Played, out: Path) -> None:
    """Write `FILES` into folder `out`; none of them is ever there half-written."""
    from dpsim.report.arrivals import draw_arrivals
    from dpsim.report.pipeline import draw_pipeline

    def render(folder: Path) -> None:
        text = canonical_json(to_json(found)) + "\n"
        (folder / FILES[0]).write_text(text, encoding="utf-8", newline="\n")
        write_trace(shown, folder / FILES[1])
        of = {"ranks": shown.ranks}
        draw_pipeline(shown.spans, shown.title, folder / FILES[2], folder / FILES[3], **of)
        draw_arrivals(shown.spans, shown.title, folder / FILES[4], folder / FILES[5], **of)

    write_into(out, FILES, render)


def written(shown: Played, files: list[Path]) -> str:
    """One sentence about what was written."""
    where = files[0] if len(files) == 1 else files[0].parent
    ranks = "1 rank" if shown.ranks == 1 else f"{shown.ranks:,} ranks"
    part = "" if len(shown.shown) == shown.ranks else f"{len(shown.shown):,} of "
    return f"Timeline of {part}{ranks} written to {where}"
