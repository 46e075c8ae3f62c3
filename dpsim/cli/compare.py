"""`dpsim compare`: clusters or strategies side by side, how surely which is best, and what to
measure before choosing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dpsim.cli.answers import answer, written
from dpsim.cli.options import Json, Sets, Text, Texts, Where, argument, option, out_option

if TYPE_CHECKING:
    from dpsim.planning.candidates import Candidate

PLACE = 50
Sources = Annotated[
    list[str],
    argument("Files, bundled names, or folders (all *.yaml directly in them).", "SCENARIO …"),
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
