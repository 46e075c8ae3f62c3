"""`dpsim serve`: replicas of a language model that answer requests."""

from __future__ import annotations

from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.options import Json, Sets, Source, Where, option, out_option

PLACE = 55
Alone = Annotated[bool, option("Without fewer replicas beside it.", name="--alone")]
Out = Annotated[Where, out_option("Write table, page and JSON there.")]


def serve(
    scenario: Source, sets: Sets = None, alone: Alone = False, json: Json = False, out: Out = None
) -> int:
    """Predict how replicas of a language model answer requests.

    It tells tokens per second, delays, and what limits.
    """
    from dpsim.report import serving as report
    from dpsim.report.progress import progress
    from dpsim.serving.answer import UnservedPoint
    from dpsim.serving.answer import serve as asked

    with progress("requests", left=True) as bar:
        found = asked(scenario, sets or (), scaling=not alone, tell=bar.of)
    if out is not None:
        report.write_serving(found, out)
    answer(json, lambda: found.document, lambda console: report.print_serving(found, console, out))
    return int(any(isinstance(point, UnservedPoint) for point in found.points))
