"""`dpsim run`: speed-up table, curve and page of a scenario."""

from __future__ import annotations

from typing import Annotated

from dpsim.cli.answers import answer, note, unfit
from dpsim.cli.options import Json, Sets, Source, Where, out_option

PLACE = 10
Out = Annotated[Where, out_option("Write table, curve, page and JSON there.")]


def run(scenario: Source, sets: Sets = None, json: Json = False, out: Out = None) -> int:
    """Predict step time, speed-up and memory of SCENARIO.

    It says what limits every point, and how sure that is.
    """
    from dpsim.describe.scenario import read
    from dpsim.predict.advice import with_advice
    from dpsim.predict.forecast import foretold
    from dpsim.report import run as report
    from dpsim.report.progress import progress

    loaded = read(scenario, sets or ())
    with progress(left=True) as bar:
        found = foretold(loaded, note, bar.of)
        _ = found.advice
    if out is not None:
        report.write_all(found, out)
    answer(json, lambda: with_advice(found), lambda console: report.print_run(found, console, out))
    doubtful = found.level is not None and found.level.fit is not None and found.level.findings
    return unfit(found.points) or int(bool(doubtful))
