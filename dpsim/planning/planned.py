"""Which inverse question is asked, and its answer: what `dpsim plan` does, without a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpsim.core import told
from dpsim.core.presented import Presented
from dpsim.core.record import Refused
from dpsim.core.refusals import text, texts
from dpsim.describe.scenario import Given, Loaded, change, taken
from dpsim.planning import choose as choosing
from dpsim.planning import largest as largest_value
from dpsim.planning import require as required_value
from dpsim.planning import tune as tuning
from dpsim.planning.bench import Bench, Counted, bench_of
from dpsim.planning.finding import Finding, document
from dpsim.planning.knobs import knob_of
from dpsim.planning.mesh import choose_mesh
from dpsim.planning.trials import searched
from dpsim.planning.wanted import Wanted, parse_wanted

#: answers a question by what it plays on the bench, and tells how far it is
Ask = Callable[[Bench, told.Told], Finding]


@dataclass(frozen=True)
class Planned(Presented):
    """The answer to an inverse question: its `finding`, and all of it as plain data."""

    finding: Finding
    document: dict[str, Any]

    def __repr__(self) -> str:
        tried = len(self.document["points"])
        return f"Planned({'found' if self.found else 'nothing will do'}: {tried:,} points played)"

    @property
    def found(self) -> bool:
        """Whether anything that was searched will do."""
        return self.finding.found

    @property
    def answer(self) -> Mapping[str, Any] | None:
        """The answer; None where nothing will do, and `infeasible` says why."""
        found: Mapping[str, Any] | None = self.document["answer"]
        return found

    @property
    def infeasible(self) -> Mapping[str, Any] | None:
        """What is missed by how much, and what binds; None where there is an answer."""
        found: Mapping[str, Any] | None = self.document["infeasible"]
        return found


def plan(
    scenario: Given,
    *,
    require: str | Sequence[str] = (),
    vary: str | Sequence[str] = (),
    deadline: str | None = None,
    budget: str | None = None,
    minimise: str | None = None,
    largest: str | None = None,
    tune: str | Sequence[str] | None = None,
    choose: str | None = None,
    relative_to: str | None = None,
    tell: told.Told = told.nobody,
    counted: Counted = lambda played: None,
) -> Planned:
    """Ask `scenario` which value is needed, what is cheapest, how large it can be, or what is best.

    require      what must hold: ``efficiency>=0.9``, ``step_time_s<=300ms``, ``fits``
    vary         what is searched: a key, ``KEY=LOW:HIGH UNIT``, or ``KEY=V1,V2``
    deadline     training is done in so long; budget: it costs at most so much
    minimise     cost, time, energy, or a field of points
    largest      the key whose largest value that fits in memory is wanted
    tune         keys whose best setting is wanted
    choose       ``parallel``: the mesh with the shortest step is wanted
    relative_to  KEY=VALUE of what efficiency compares with
    tell         is told how many of how many points are done; `counted` how many were played

    Raises Refused where nothing is asked, or two things are.
    """
    keys = tune.split(",") if isinstance(tune, str) else tune
    _check(deadline=deadline, budget=budget, minimise=minimise, largest=largest, choose=choose)
    for option, several in (("--require", require), ("--vary", vary), ("--tune", keys or ())):
        texts(option, _texts(several))
    asked = (_texts(require), _texts(vary), deadline, budget, minimise, largest, keys)
    ask = question(*asked, choose)
    loaded, bench = _benched(taken(scenario), relative_to, mesh=choose is not None)
    bench.tell = counted
    finding = ask(bench, tell)
    return Planned(finding, document(loaded, bench, finding))


def _benched(given: Loaded, relative_to: str | None, *, mesh: bool) -> tuple[Loaded, Bench]:
    """What is asked of `given`, and its bench: where a `mesh` is chosen, of any, but calibrated on
    the scenario's own."""
    loaded = _of_any_mesh(given) if mesh else given
    return loaded, bench_of(loaded, relative_to, given)


def _of_any_mesh(loaded: Loaded) -> Loaded:
    """Without a micro-batch beside the global batch: the mesh that is chosen has its own, and the
    scenario's might not divide the batch."""
    batch = loaded.scenario.batch
    if not batch.follows:
        return loaded
    free = change(loaded, {"batch": {"global": batch.global_}})
    return replace(free, sets=loaded.sets)


def _check(**options: object) -> None:
    """Refuse options that are neither texts nor nothing."""
    for option, given in options.items():
        text(f"--{option}", given)


def _texts(given: str | Sequence[str]) -> Sequence[str]:
    return (given,) if isinstance(given, str) else given


def question(
    require: Sequence[str],
    vary: Sequence[str],
    deadline: str | None,
    budget: str | None,
    minimise: str | None,
    largest: str | None,
    tune: Sequence[str] | None,
    choose: str | None = None,
) -> Ask:
    """Which question the options ask; Refused where they ask two, or none."""
    wanted = _wanted(require, {"--deadline": deadline, "--budget": budget})
    objective = _objective(minimise, deadline, budget)
    if choose is not None:
        others = {"--tune": tune, "--minimise": objective, "--vary": vary, "--largest": largest}
        return _mesh(choose, wanted, others)
    if largest is not None:
        return _largest(largest, wanted, {"--tune": tune, "--minimise": minimise, "--vary": vary})
    if tune is not None:
        keys, best = list(tune), objective if minimise else None

        def tuned(bench: Bench, tell: told.Told) -> Finding:
            axes = tuning.tune_axes(bench, keys, vary)
            return tuning.tune(bench, axes, wanted, best, tell)

        return tuned
    if objective is not None:
        return lambda bench, tell: choosing.choose(bench, vary, wanted, objective, tell)
    return _required(vary, wanted)


def _wanted(require: Sequence[str], limits: Mapping[str, str | None]) -> list[Wanted]:
    """What must hold: the requirements, and the limits by option."""
    fields = {"--deadline": "time_to_train_s", "--budget": "cost_usd"}
    return [parse_wanted(text) for text in require] + [
        parse_wanted(f"{fields[option]}<={text}", option)
        for option, text in limits.items()
        if text is not None
    ]


def _objective(minimise: str | None, deadline: str | None, budget: str | None) -> str | None:
    """The field that is minimised; with a deadline alone the cost, with a budget alone the time."""
    if minimise is not None:
        return choosing.OBJECTIVES.get(minimise, minimise)
    if deadline is not None:
        return choosing.OBJECTIVES["cost"]
    return choosing.OBJECTIVES["time"] if budget is not None else None


def _largest(key: str, wanted: Sequence[Wanted], others: Mapping[str, object]) -> Ask:
    """How large `key` can be; none of the `others`, by option, goes with that."""
    if others["--tune"] is not None:
        raise Refused("--tune: --largest is another question; ask one at a time")
    for other, given in others.items():
        if given:
            raise Refused(f"{other}: does not go with --largest")

    def largest(bench: Bench, tell: told.Told) -> Finding:
        knob = knob_of(bench.scenario(), key.strip(), "--largest")
        return largest_value.largest(bench, knob, wanted)

    return largest


def _mesh(what: str, wanted: Sequence[Wanted], others: Mapping[str, object]) -> Ask:
    """Which mesh is best; none of the `others`, by option, goes with that."""
    if what.strip() != "parallel":
        raise Refused(f"--choose {what[:60]}: parallel is accepted")
    for other, given in others.items():
        if given:
            raise Refused(f"{other}: does not go with --choose, which minimises the step time")
    return lambda bench, tell: choose_mesh(bench, wanted, tell)


def _required(vary: Sequence[str], wanted: Sequence[Wanted]) -> Ask:
    """From which value of one key on `wanted` holds."""
    if not wanted:
        raise Refused(
            "nothing is asked; give --require with --vary, --deadline or --budget, --minimise, "
            "--largest, --tune, or --choose parallel"
        )
    if len(vary) != 1:
        many = "is given more than once; with --minimise several keys are searched"
        missing = "is missing; --require needs one key to search, as in --vary cluster.nodes"
        raise Refused(f"--vary: {many if vary else missing}")

    def required(bench: Bench, tell: told.Told) -> Finding:
        knob, given = searched(bench, vary[0])
        return required_value.require(bench, knob, wanted, given)

    return required
