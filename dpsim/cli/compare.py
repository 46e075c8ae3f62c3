"""`dpsim compare`: clusters or strategies side by side, how surely which is best, and what to
measure before choosing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsim.cli.answers import answer, written
from dpsim.cli.options import Json, Sets, out_option

if TYPE_CHECKING:
    from dpsim.planning.candidates import Candidate

PLACE = 50
Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SCENARIO …", help="Files, bundled names, or folders (all *.yaml directly in them)."
    ),
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="KEY=V1,V2,…",
        help="A candidate for each value, e.g. strategy.kind=ddp,fsdp. Repeatable.",
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="cost|time|energy", help="What is best; default: cost, if all have prices."
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--ranks", min=1, max=1_048_576, help="Compare at so many ranks, not at the last point."
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the draws.")]
Draws = Annotated[
    int, typer.Option("--draws", min=100, max=1_000_000, help="Draws of what is not known.")
]
Out = Annotated[Path | None, out_option("Write table, picture, page and JSON there.")]


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
    """Compare SCENARIOs: step, memory, days, money and energy of each, and which is best."""
    from typing import cast

    from dpsim.core.record import Refused
    from dpsim.planning import compare, compared, measure_next
    from dpsim.report import compare as report

    if by is not None and by not in compare.UNITS:
        raise Refused(f"--by {by}: is none of {', '.join(compare.UNITS)}")
    candidates = _played(scenarios, sets, vary, ranks)
    chosen = cast("compare.By | None", by)
    found = compare.comparison(candidates, by=chosen, seed=seed, draws=draws)
    worth = measure_next.document(found)
    first = next(iter(worth), None)
    said = {**compared.document(found), "measurements": worth, "measure_next": first}
    files = written(out, [] if out is None else report.write_comparison(said, out))
    answer(json, lambda: said, lambda console: report.print_comparison(said, console, files))
    return int(any(not candidate.usable for candidate in candidates))


def _played(
    scenarios: list[str], sets: list[str] | None, vary: list[str] | None, ranks: int | None
) -> list[Candidate]:
    """The candidates, with a progress bar."""
    from dpsim.planning import candidates
    from dpsim.report.progress import progress

    wanted = candidates.asked(scenarios, sets or (), vary or ())
    found: list[Candidate] = []
    with progress(left=True) as bar:
        for each in wanted:
            bar.of(len(found), len(wanted))
            found.append(candidates.played(each, ranks))
    return found
