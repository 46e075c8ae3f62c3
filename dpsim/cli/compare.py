"""`dpsim compare`: clusters or strategies side by side, how surely which is best, and what to
measure before choosing."""

from __future__ import annotations

from typing import Annotated

from dpsim.cli.answers import answer, written
from dpsim.cli.completion import scenarios as offered
from dpsim.cli.options import Json, Sets, Text, Texts, Where, argument, option, out_option

PLACE = 50
Sources = Annotated[
    list[str],
    argument(
        "Files, bundled names, or folders (all *.yaml directly in them).", "SCENARIO …", offered
    ),
]
Vary = Annotated[
    Texts,
    option("A candidate for each value, e.g. strategy.kind=ddp,fsdp. Repeatable.", "KEY=V1,V2,…"),
]
ByOption = Annotated[
    Text, option("What is best; default: cost, if all have prices.", "cost|time|energy")
]
Ranks = Annotated[
    int | None, option("Compare at so many ranks, not at the last point.", min=1, max=1_048_576)
]
Seed = Annotated[int, option("Of the draws.", min=0)]
Draws = Annotated[int, option("Draws of what is not known.", min=100, max=1_000_000)]
Out = Annotated[Where, out_option("Write table, picture, page and JSON there.")]


def compare(
    scenarios: Sources,
    sets: Sets = None,
    vary: Vary = None,
    by: ByOption = None,
    ranks: Ranks = None,
    seed: Seed = 0,
    draws: Draws = 20_000,
    json: Json = False,
    out: Out = None,
) -> int:
    """Compare SCENARIOs in time, memory, money and energy.

    It says which is best, and how surely.
    """
    from dpsim.planning import comparing
    from dpsim.report import compare as report
    from dpsim.report.progress import progress

    with progress(left=True) as bar:
        found = comparing.compare(
            scenarios, sets=sets or (), vary=vary or (), by=by, ranks=ranks, seed=seed,
            draws=draws, tell=bar.of,
        )  # fmt: skip
    said = found.document
    files = written(out, [] if out is None else report.write_comparison(said, out))
    answer(json, lambda: said, lambda console: report.print_comparison(said, console, files))
    return int(not found.usable)
