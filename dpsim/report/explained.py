"""What `dpsim explain` writes: its document, the timeline as pictures and as a trace."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpsim.core.record import Refused
from dpsim.predict.document import to_json
from dpsim.report.bundle import Bundle, write_bundle
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
    from dpsim.report import arrivals, pipeline

    def fill(bundle: Bundle) -> None:
        bundle.json(FILES[0], to_json(found))
        write_trace(shown, bundle.folder / FILES[1])
        for picture, png, svg in ((pipeline, *FILES[2:4]), (arrivals, *FILES[4:6])):
            bundle.figure(
                png, svg, partial(picture.make_figure, shown.spans, shown.title, ranks=shown.ranks)
            )

    write_bundle(out, FILES, fill)


def written(shown: Played, files: list[Path]) -> str:
    """One sentence about what was written."""
    where = files[0] if len(files) == 1 else files[0].parent
    ranks = "1 rank" if shown.ranks == 1 else f"{shown.ranks:,} ranks"
    part = "" if len(shown.shown) == shown.ranks else f"{len(shown.shown):,} of "
    return f"Timeline of {part}{ranks} written to {where}"
