"""`dpsim plan`: inverse questions, answered by bisection and search over many predictions."""

from __future__ import annotations

from typing import Annotated

from dpsim.cli.answers import answer, written
from dpsim.cli.options import Json, Sets, Source, Text, Texts, Where, option, out_option

PLACE = 30
Requires = Annotated[
    Texts,
    option(
        "What must hold, e.g. efficiency>=0.9, step_time_s<=300ms, fits. Repeatable.",
        "FIELD>=VALUE",
    ),
]
Varies = Annotated[
    Texts,
    option(
        "What is searched: a key, a range LOW:HIGH UNIT, or values. Repeatable.", "KEY[=VALUES]"
    ),
]
Deadline = Annotated[Text, option("Training is done in, e.g. 30d.", "TIME")]
Budget = Annotated[Text, option("It costs at most, e.g. 200000usd or 4.5Musd.", "MONEY")]
Minimise = Annotated[Text, option("cost, time, energy, or a field of points.", "WHAT")]
Largest = Annotated[Text, option("The largest whole number that fits in memory.", "KEY")]
Tune = Annotated[Text, option("The best setting of these keys.", "KEY,KEY")]
Choose = Annotated[
    Text,
    option("parallel: the mesh, micro-batches and recomputation with the shortest step.", "KEY"),
]
Relative = Annotated[
    Text,
    option(
        "What efficiency compares with; default: the first point of the sweep, or one rank.",
        "KEY=VALUE",
    ),
]
Out = Annotated[Where, out_option("Write JSON, table, plot and page there.")]


def plan(
    scenario: Source,
    require: Requires = None,
    vary: Varies = None,
    deadline: Deadline = None,
    budget: Budget = None,
    minimise: Minimise = None,
    largest: Largest = None,
    tune: Tune = None,
    choose: Choose = None,
    relative_to: Relative = None,
    sets: Sets = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Find which value SCENARIO needs, or which is best or cheapest.

    Exit code 1: nothing that was searched will do; the answer says by how much and what binds.
    """
    from dpsim.describe.scenario import read
    from dpsim.planning import planned
    from dpsim.report import plan as report
    from dpsim.report.progress import progress

    keys = None if tune is None else tune.split(",")
    asked = (deadline, budget, minimise, largest, keys, choose)
    _ = planned.question(require or (), vary or (), *asked)  # refused before the scenario is
    with progress("settings" if choose else "points") as bar:
        found = planned.plan(
            read(scenario, sets or ()), require=require or (), vary=vary or (), deadline=deadline,
            budget=budget, minimise=minimise, largest=largest, tune=tune, choose=choose,
            relative_to=relative_to, tell=bar.of, counted=bar.played,
        )  # fmt: skip
    said = found.document
    files = written(out, [] if out is None else report.write_plan(said, out))
    answer(json, lambda: said, lambda console: report.print_plan(said, console, files))
    return int(not found.found)
