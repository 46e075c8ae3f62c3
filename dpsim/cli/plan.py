"""`dpsim plan`: inverse questions, answered by bisection and search over many predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsim.cli.run import Json, Sets, Source

if TYPE_CHECKING:
    from dpsim.planning.bench import Bench
    from dpsim.planning.plan import Finding
    from dpsim.planning.wanted import Wanted
    from dpsim.report.plan import Progress

Texts = list[str] | None
Requires = Annotated[
    Texts,
    typer.Option(
        "--require",
        metavar="FIELD>=VALUE",
        help="What must hold, e.g. efficiency>=0.9, step_time_s<=300ms, fits. Repeatable.",
    ),
]
Varies = Annotated[
    Texts,
    typer.Option(
        "--vary",
        metavar="KEY[=VALUES]",
        help="What is searched: a key, a range LOW:HIGH UNIT, or values. Repeatable.",
    ),
]
Deadline = Annotated[
    str | None, typer.Option("--deadline", metavar="TIME", help="Training is done in, e.g. 30d.")
]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="MONEY", help="It costs at most, e.g. 200000usd.")
]
Minimise = Annotated[
    str | None,
    typer.Option("--minimise", metavar="WHAT", help="cost, time, energy, or a field of points."),
]
Largest = Annotated[
    str | None,
    typer.Option("--largest", metavar="KEY", help="The largest whole number that fits in memory."),
]
Tune = Annotated[
    str | None, typer.Option("--tune", metavar="KEY,KEY", help="The best setting of these keys.")
]
Relative = Annotated[
    str | None,
    typer.Option(
        "--relative-to",
        metavar="KEY=VALUE",
        help="What efficiency compares with; default: the first point of the sweep, or one rank.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="DIR", help="Write JSON, table and plot there."),
]


def plan(
    scenario: Source,
    require: Requires = None,
    vary: Varies = None,
    deadline: Deadline = None,
    budget: Budget = None,
    minimise: Minimise = None,
    largest: Largest = None,
    tune: Tune = None,
    relative_to: Relative = None,
    sets: Sets = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Ask SCENARIO which value is needed, what is cheapest, how large it can be, or what is best.

    Exit code 1: nothing that was searched will do; the answer says by how much and what binds.
    """
    from dpsim.describe.scenario import read
    from dpsim.planning.bench import bench_of
    from dpsim.planning.plan import document
    from dpsim.report import canonical_json, console
    from dpsim.report.plan import files_of, print_plan, progress, write_plan

    asked = _asked(require, vary, deadline, budget, minimise, largest, tune)
    loaded = read(scenario, sets or ())
    bench = bench_of(loaded, relative_to)
    with progress() as bar:
        bench.tell = bar.played
        found = document(loaded, bench, _answer(bench, asked, bar))
    if out is not None:
        write_plan(found, out)
    if json:
        typer.echo(canonical_json(found))
    else:
        written = f"Written to {out}: {', '.join(files_of(found))}" if out else ""
        print_plan(found, console(), written)
    return 0 if found["found"] else 1


@dataclass(frozen=True)
class _Asked:
    """The question: `kind` is require, choose, largest or tune; `keys`: of the last two."""

    kind: str
    wanted: Sequence[Wanted]
    vary: Sequence[str]
    minimise: str | None
    keys: str = ""


def _asked(
    require: Texts,
    vary: Texts,
    deadline: str | None,
    budget: str | None,
    minimise: str | None,
    largest: str | None,
    tune: str | None,
) -> _Asked:
    """Which question the options ask; Refused where they ask two, or none."""
    from dpsim.core.record import Refused
    from dpsim.planning.wanted import parse_wanted

    wanted = [parse_wanted(text) for text in require or ()]
    limits = {"--deadline": ("time_to_train_s", deadline), "--budget": ("cost_usd", budget)}
    for option, (field, text) in limits.items():
        if text is not None:
            wanted.append(parse_wanted(f"{field}<={text}", option))
    objective = _objective(minimise, deadline, budget)
    if largest is not None and tune is not None:
        raise Refused("--tune: --largest is another question; ask one at a time")
    if largest is not None:
        for option, given in (("--minimise", minimise), ("--vary", vary)):
            if given:
                raise Refused(f"{option}: does not go with --largest")
        return _Asked("largest", wanted, (), None, largest)
    if tune is not None:
        return _Asked("tune", wanted, vary or (), objective if minimise else None, tune)
    if objective is not None:
        return _Asked("choose", wanted, vary or (), objective)
    if not wanted:
        raise Refused(
            "nothing is asked; give --require with --vary, --deadline or --budget, --minimise, "
            "--largest, or --tune"
        )
    if len(vary or ()) != 1:
        many = "is given more than once; with --minimise several keys are searched"
        missing = "is missing; --require needs one key to search, as in --vary cluster.nodes"
        raise Refused(f"--vary: {many if vary else missing}")
    return _Asked("require", wanted, vary or (), None)


def _objective(minimise: str | None, deadline: str | None, budget: str | None) -> str | None:
    """The field that is minimised; with a deadline alone the cost, with a budget alone the time."""
    from dpsim.planning.choose import OBJECTIVES

    if minimise is not None:
        return OBJECTIVES.get(minimise, minimise)
    if deadline is not None:
        return OBJECTIVES["cost"]
    return OBJECTIVES["time"] if budget is not None else None


def _answer(bench: Bench, asked: _Asked, bar: Progress) -> Finding:
    from dpsim.planning import choose, plan
    from dpsim.planning.knobs import knob_of

    if asked.kind == "tune":
        axes = choose.tune_axes(bench, asked.keys.split(","), asked.vary)
        return choose.tune(bench, axes, asked.wanted, asked.minimise, bar.of)
    if asked.kind == "choose":
        assert asked.minimise is not None
        return choose.choose(bench, asked.vary, asked.wanted, asked.minimise, bar.of)
    if asked.kind == "largest":
        knob = knob_of(bench.scenario(), asked.keys.strip(), "--largest")
        return plan.largest(bench, knob, asked.wanted)
    knob, given = plan.searched(bench, asked.vary[0])
    return plan.require(bench, knob, asked.wanted, given)
