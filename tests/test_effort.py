"""What playing takes is known before anything is made for it but programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpsim.cases.case import Case
from dpsim.cases.chapters import Chapters
from dpsim.core import capacity, plugins, processes
from dpsim.core.capacity import Room, TooSmall
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.play import event
from dpsim.play.event.players import Ensemble
from dpsim.predict import affordable
from dpsim.predict.affordable import check_affordable
from dpsim.predict.effort import APART, EVENT, VECTORISED, effort_of
from dpsim.predict.forecast import forecast
from dpsim.predict.player import fastest, play

BASE: dict[str, Any] = {
    "model": {"huggingface": "llama-3-8b.json", "sequence_length": 512},
    "cluster": {"machine": "dgx-h100", "nodes": 2},
    "strategy": {"kind": "ddp"},
}


def case_of(**changes: Any) -> Case:
    return Case(load({**BASE, **changes}, Path(), "test").points[0], Path())


PLAYED: list[dict[str, Any]] = [
    {}, {"iteration": 2}, {"variability": {"jitter": "2 %", "steps": 5}},
    {"parallel": {"pipeline": 4}}, {"parallel": {"tensor": 2, "pipeline": 2}, "detail": "rounds"},
    {"parallel": {"pipeline": 4}, "variability": {"slow_ranks": {1: 2.0}}},
    {"batch": {"global": 17}}, {"batch": {"accumulation": 40}},
    {"variability": {"slow_ranks": {3: 1.5, 5: 1.5, 6: 2.0}}},
    {"strategy": {"kind": "fsdp"}}, {"strategy": {"kind": "fsdp", "shard": 8}},
    {"variability": {"delays": {"generator": "mersenne", "seed": 1, "low": "0 s", "high": "1 ms"}}},
]  # fmt: skip


@pytest.mark.parametrize("changes", PLAYED, ids=str)
def test_the_effort_is_that_of_the_first_play(changes: dict[str, Any]) -> None:
    case = case_of(**changes)
    found, request = effort_of(case), case.plays()[0]
    cast = request.cast(0)
    assert (found.players, found.steps) == (cast.ranks, request.steps)
    sizes = [len(program.ops) for program in cast.programs]
    assert found.operations == sum(sizes) / len(sizes)


@pytest.mark.parametrize("changes", PLAYED, ids=str)
def test_ranks_that_do_the_same_are_counted_once_for_the_event_engine(
    changes: dict[str, Any],
) -> None:
    case = case_of(**changes)
    found, request = effort_of(case), case.plays()[0]
    players = Ensemble(request, [request.cast(k) for k in range(request.steps)]).players()
    assert found.folded == (case.ranks if "detail" in changes else len(players))


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "horovod"])
def test_what_ranks_that_are_alike_are_estimated_to_take_grows_as_their_events(kind: str) -> None:
    """A hundred times the ranks are hardly more events, and so not a hundred times the seconds."""
    events, seconds = [], []
    for nodes in (1, 128):
        cluster = {"machine": "dgx-h100", "nodes": nodes}
        case = case_of(cluster=cluster, strategy={"kind": kind}, engine="event")
        seconds.append(effort_of(case).seconds(EVENT))
        events.append(event.play(case.plays()[0]).events)
    assert events[1] < 1.5 * events[0]
    assert 1.0 < seconds[1] / seconds[0] < 3.0


def test_many_ranks_that_are_alike_are_affordable_event_by_event() -> None:
    """131,072 of them take a second, as one of them does, and not 63 GB."""
    case = case_of(cluster={"machine": "dgx-h100", "nodes": 16384}, engine="event")
    found = effort_of(case)
    check_affordable(case, found, EVENT)
    assert found.folded == 1
    assert found.bytes(EVENT) < 1e9


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "megatron", "horovod"])
@pytest.mark.parametrize("count", [17, 40, 200])
@pytest.mark.parametrize("split", [{}, {"pipeline": 2}])
def test_long_steps_are_counted_on_short_ones(kind: str, split: dict[str, int], count: int) -> None:
    if kind == "fsdp" and split:
        return
    case = case_of(strategy={"kind": kind}, parallel=split, batch={"accumulation": count})
    sizes = [len(program.ops) for program in case.programs.cast(None).programs]
    assert effort_of(case).operations == sum(sizes) / len(sizes)


@pytest.mark.parametrize(("stages", "count"), [(3, 132), (6, 132)])
def test_long_interleaved_steps_are_counted_on_what_their_schedule_takes(
    stages: int, count: int
) -> None:
    """8 micro-batches, which are none of the scenario's, are not dealt to 3 stages."""
    parts = [{"name": f"l{i}", "parameters": [8], "forward": "1 ms", "backward": "2 ms"}
             for i in range(24)]  # fmt: skip
    case = case_of(
        model={"layers": parts}, strategy={"kind": "megatron"}, parallel={"pipeline": stages},
        cluster={"machine": "dgx-h100", "nodes": 3}, batch={"accumulation": count},
        schedule={"kind": "interleaved_1f1b", "chunks": 2},
    )  # fmt: skip
    sizes = [len(program.ops) for program in case.programs.cast(None).programs]
    assert effort_of(case).operations == sum(sizes) / len(sizes)


def test_neither_routes_nor_plans_are_made_for_it() -> None:
    case = case_of(cluster={"machine": "dgx-h100", "nodes": 4096})
    effort_of(case)
    assert "costs" not in vars(case.transport)


LARGE: dict[str, Any] = {
    "cluster": {"machine": "dgx-h100", "nodes": 8192},
    "variability": {"jitter": "2 %", "steps": 1000},
}
SMALL = Room(10e9)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "room", lambda: SMALL)


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"engine": "event"}, Refused,
         r"event by event would take about .* h \(a single play may take 1.0 h\) and .* GB of "
         "memory; engine: auto is much faster"),
        ({"detail": "rounds"}, Refused, "detail: collective is much faster"),
        ({"engine": "event", "cluster": {"machine": "dgx-h100", "nodes": 512}}, TooSmall,
         r"and there are 8.0 GB \(80 % of this machine's 10 GB\); engine: auto is much faster"),
        ({"strategy": {"kind": "fsdp", "shard": 8}, "batch": {"accumulation": 64}}, Refused,
         r"in one pass over all ranks would take .* or batch.accumulation of [0-9]+ would do, in"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_would(
    changes: dict[str, Any], kind: type[Exception], said: str
) -> None:
    case = case_of(**{**LARGE, "variability": {"jitter": "2 %", "steps": 40}, **changes})
    for way in (play, fastest) if case.scenario.engine == "auto" else (play,):
        with pytest.raises(kind, match=said):
            way(case)
    assert "costs" not in vars(case.transport)


def test_the_refusal_of_what_takes_too_long_is_the_same_on_every_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For it is an answer, and stored as one; that a machine is too small is none."""
    case = case_of(**LARGE, strategy={"kind": "fsdp", "shard": 8}, batch={"accumulation": 64})
    texts = set()
    for room in (SMALL, Room(1e6), Room(1e15), Room(10e9, processes=8)):
        monkeypatch.setattr(capacity, "room", lambda room=room: room)
        with pytest.raises(Refused) as refused:
            play(case)
        texts.add(str(refused.value))
    assert len(texts) == 1
    assert "machine" not in texts.pop()


HYBRID = {"strategy": {"kind": "fsdp", "shard": 8}}
MANY: dict[str, Any] = {
    "cluster": {"machine": "dgx-h100", "nodes": 128},
    "variability": {"jitter": "2 %", "steps": 1000},
}
TOO_MUCH: list[dict[str, Any]] = [
    {**MANY, **HYBRID},
    {**MANY, **HYBRID, "batch": {"accumulation": 12}},
    {**MANY, **HYBRID, "batch": {"accumulation": 12, "global": 1024 * 12 * 3}},
    {**MANY, "batch": {"accumulation": 12}},
    {"cluster": MANY["cluster"], **HYBRID, "batch": {"accumulation": 12}},
    {**MANY, "parallel": {"tensor": 8, "pipeline": 4}},
    {**MANY, "strategy": {"kind": "zero", "stage": 3, "hpz_partition_size": 8}},
]


def suggestions(text: str) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """Each thing that `text` says would do, as a change of a scenario."""
    for number in re.findall(r"([0-9,]+) ranks(?= or | would do)", text):
        ranks = int(number.replace(",", ""))
        yield lambda s, n=ranks: {**s, "cluster": {"machine": "dgx-h100", "ranks": n}}
    for section, key, number in re.findall(r"(\w+)\.(\w+) of ([0-9,]+)", text):
        value = int(number.replace(",", ""))
        yield lambda s, a=section, k=key, n=value: {**s, a: {**s[a], k: n}}


@pytest.mark.parametrize("changes", TOO_MUCH, ids=str)
@pytest.mark.parametrize("limit", [1.0, 10.0, 1e9])
@pytest.mark.parametrize("engine", [EVENT, None], ids=["event", "vectorised"])
def test_what_would_do_does(
    changes: dict[str, Any], limit: float, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affordable, "LIMIT", limit)
    monkeypatch.setattr(capacity, "room", lambda: Room(0.1e9))
    monkeypatch.setattr(affordable, "ANYWHERE", 0.08e9)

    def tried(scenario: dict[str, Any]) -> None:
        case = case_of(**scenario)
        found = effort_of(case)
        check_affordable(case, found, engine or found.vectorised)

    try:
        tried(changes)
    except (Refused, TooSmall) as error:
        for change in suggestions(str(error)):
            tried(change(changes))
        assert ("would do" in str(error)) == (len(list(suggestions(str(error)))) > 0)


@pytest.mark.parametrize(
    ("limit", "kind", "said"),
    [
        (300.0, Refused, ["ranks or", "variability.steps", "batch.accumulation"]),
        (50.0, Refused, ["variability.steps"]),
        (1e9, TooSmall, ["ranks or", "batch.accumulation"]),
        (1e-3, Refused, []),
    ],
)
def test_only_what_helps_is_said(
    limit: float, kind: type[Exception], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer ranks do not save the time that an operation takes for all, nor fewer steps memory,
    where only two are kept at a time; and nothing does in a millisecond."""
    monkeypatch.setattr(affordable, "LIMIT", limit)
    monkeypatch.setattr(capacity, "room", lambda: Room(25e6))
    case = case_of(**MANY, **HYBRID, batch={"accumulation": 12})
    with pytest.raises(kind) as refused:
        check_affordable(case, effort_of(case), APART)
    text = str(refused.value)
    ways = ("ranks or", "variability.steps", "batch.accumulation")
    assert [way for way in ways if way in text] == said, text
    assert ("would do" in text) == bool(said)


def test_appetites_are_in_order() -> None:
    found = effort_of(case_of(**LARGE, **HYBRID))
    assert found.vectorised is APART
    assert found.bytes(EVENT) > found.bytes(APART) > found.bytes(VECTORISED)


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "whole"), [("max", 32e9), ("4000000000", 4e9), ("64000000000", 32e9), (None, 32e9)]
)
def test_a_container_has_what_it_is_granted(
    limit: str | None, whole: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    path = tmp_path / "memory.max"
    if limit is not None:
        path.write_text(limit + "\n")
    monkeypatch.setattr(capacity, "CONTAINER", path)
    monkeypatch.setattr(capacity, "_physical", lambda: 32e9)
    assert capacity.room() == Room(whole)
    assert capacity.room().bytes == pytest.approx(0.8 * whole)


def test_processes_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    alone = capacity.room()
    with processes.pool(4) as found:
        shared = found.submit(capacity.room).result()
    assert (alone.processes, shared.processes) == (1, 4)
    assert shared.bytes == alone.bytes / 4
    assert str(Room(25e9, 4)) == "80 % of this machine's 25 GB, shared by 4 processes"


# -- forecasts ------------------------------------------------------------------------------------


def test_a_long_run_says_so_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"variability": {"jitter": "2 %", "steps": 400}}
    loaded = load({**BASE, **LARGE, **steps, **HYBRID}, Path(), "test")
    said = forecast(loaded, Chapters())
    assert re.fullmatch(r"65,536 ranks take about [0-9.,]+ (s|h) and [0-9.]+ GB of memory", said)
    assert forecast(load(BASE, Path(), "test"), Chapters()) == ""
    wrong = load({**BASE, "batch": {"global": 3}}, Path(), "test")
    assert forecast(wrong, Chapters()) == ""


def test_the_most_costly_point_is_forecast_in_whatever_order() -> None:
    """Not the one with the most ranks, nor the first of them."""
    few = {"cluster.nodes": 4096, "variability.steps": 500, "strategy.shard": 8}
    many = {"cluster.nodes": 8192, "variability.steps": 2, "strategy.shard": None}
    scenario = {**BASE, **LARGE, "strategy": {"kind": "fsdp"}}
    said = {
        forecast(load({**scenario, "sweep": list(order)}, Path(), "test"), Chapters())
        for order in ((few, many), (many, few))
    }
    assert len(said) == 1
    assert said.pop().startswith("32,768 ranks take about")


@pytest.mark.parametrize("kind", plugins.names("schedules"))
def test_long_steps_of_every_schedule_are_counted_on_short_ones(kind: str) -> None:
    parts = [{"name": f"l{i}", "parameters": [8], "forward": "1 ms", "backward": "2 ms"}
             for i in range(24)]  # fmt: skip
    case = case_of(
        model={"layers": parts}, strategy={"kind": "megatron"}, parallel={"pipeline": 4},
        cluster={"machine": "dgx-h100", "nodes": 4}, batch={"accumulation": 24},
        schedule={"kind": kind},
    )  # fmt: skip
    sizes = [len(program.ops) for program in case.programs.cast(None).programs]
    assert effort_of(case).operations == pytest.approx(sum(sizes) / len(sizes))
