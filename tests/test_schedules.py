"""Pipeline schedules run what torch runs, in its order, and take the time their papers say.

torch's own tables (torch.distributed.pipelining) are the oracle of every list; a player of a few
lines plays the lists.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules as torch_schedules

from dpsim.compile.schedules import MAX_ACTS, Act, Schedule, peak_in_flight, spell
from dpsim.compile.schedules.dualpipe import DualPipe
from dpsim.compile.schedules.dualpipe_v import DualPipeV
from dpsim.compile.schedules.gpipe import GPipe
from dpsim.compile.schedules.interleaved_1f1b import Interleaved1F1B
from dpsim.compile.schedules.looped_bfs import LoopedBFS
from dpsim.compile.schedules.naive import Naive
from dpsim.compile.schedules.one_f_one_b import OneFOneB
from dpsim.compile.schedules.zb1p import ZB1P
from dpsim.compile.schedules.zb2p import ZB2P
from dpsim.compile.schedules.zbv import ZBV
from dpsim.core import plugins
from dpsim.core.record import Refused

HOWTO = Path(__file__).resolve().parent.parent / "docs" / "howto"
DUALPIPE = Path(__file__).resolve().parent / "data" / "schedules" / "dualpipe.json"
SCHEDULES: tuple[Schedule, ...] = (
    Naive(),
    GPipe(),
    OneFOneB(),
    *(kind(chunks=v) for kind in (Interleaved1F1B, ZB1P, LoopedBFS) for v in (1, 2, 3, 4)),
    ZB2P(),
    ZBV(),
    DualPipeV(),
    DualPipe(),
)


def name(schedule: Schedule) -> str:
    return f"{plugins.name_of(schedule)}-{schedule.chunks}"


each = pytest.mark.parametrize("schedule", SCHEDULES, ids=name)


# -- a player -------------------------------------------------------------------------------------


def play(
    schedule: Schedule,
    ranks: int,
    micro_batches: int,
    seconds: Mapping[str, float],
    latency: float = 0.0,
) -> float:
    """When the last operation ends.  `seconds` per kind are of all chunks of a rank together;
    `latency` is between ranks.  Raises RecursionError where operations wait for each other."""
    lists = schedule.lists(ranks, micro_batches)
    along, share = schedule.stages(ranks), schedule.chunks // schedule.pipes
    before = {b: a for acts in lists for a, b in pairwise(acts)}
    there = {act for acts in lists for act in acts}

    block: dict[Act, tuple[Act, Act]] = {}  # the forward and the backward that run side by side
    for rank, acts in enumerate(lists):
        for i in schedule.blocks(rank, ranks, micro_batches):
            block[acts[i]] = block[acts[i + 1]] = (acts[i], acts[i + 1])

    @cache
    def end(act: Act) -> float:
        parts = block.get(act, (act,))
        waits = [end(before[parts[0]])] if parts[0] in before else []
        for other in (o for part in parts for o in needs(part) if o not in parts):
            far = schedule.rank_of(other.stage, ranks) != schedule.rank_of(act.stage, ranks)
            waits.append(end(other) + latency * far)
        return max(waits, default=0.0) + sum(seconds[p.kind] for p in parts) / share

    def needs(act: Act) -> list[Act]:
        s, m = act.stage, act.micro_batch
        if act.kind == "F":
            return [Act(s - 1, "F", m)] if s % along else []
        if act.kind == "W":
            return [Act(s, "I", m)]
        if (s + 1) % along == 0:
            return [Act(s, "F", m)]
        later = [Act(s + 1, kind, m) for kind in "BI" if Act(s + 1, kind, m) in there]
        assert len(later) == 1
        return [Act(s, "F", m), *later]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        return max(end(acts[-1]) for acts in lists)
    finally:
        sys.setrecursionlimit(limit)


EVEN = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
UNEVEN = {"F": 1.0, "B": 2.0, "I": 1.2, "W": 0.8}


@pytest.mark.parametrize(
    ("schedule", "ranks", "micro_batches", "seconds", "latency", "expected"),
    [
        (Naive(), 4, 1, EVEN, 0.0, 12.0),
        (Naive(), 4, 8, EVEN, 0.0, 96.0),
        (GPipe(), 4, 8, EVEN, 0.0, 33.0),
        (OneFOneB(), 4, 8, EVEN, 0.0, 33.0),
        (Interleaved1F1B(chunks=2), 4, 8, EVEN, 0.0, 28.5),
        (Interleaved1F1B(chunks=4), 4, 8, EVEN, 0.0, 26.25),
        (Interleaved1F1B(chunks=2), 2, 4, EVEN, 0.0, 13.5),
        (ZB1P(), 4, 8, EVEN, 0.0, 27.0),
        (ZB1P(chunks=2), 4, 8, EVEN, 0.0, 25.5),
        (ZBV(), 4, 8, EVEN, 0.0, 25.5),
        (DualPipeV(), 4, 8, EVEN, 0.0, 27.0),
        (DualPipe(), 4, 8, EVEN, 0.0, 26.0),
        (ZB2P(), 4, 8, EVEN, 0.0, 27.0),
        (ZB1P(), 4, 8, UNEVEN, 0.0, 28.2),
        (ZBV(), 4, 8, UNEVEN, 0.0, 25.8),
        (GPipe(), 4, 8, EVEN, 0.1, 33.6),
        (OneFOneB(), 4, 8, EVEN, 0.1, 34.6),
        (Interleaved1F1B(chunks=2), 4, 8, EVEN, 0.1, 29.9),
    ],
)
def test_a_step_of_equal_stages_takes_this_long(
    schedule: Schedule,
    ranks: int,
    micro_batches: int,
    seconds: Mapping[str, float],
    latency: float,
    expected: float,
) -> None:
    assert play(schedule, ranks, micro_batches, seconds, latency) == pytest.approx(
        expected, rel=1e-12
    )


durations = st.floats(0.001, 1000.0)


@settings(max_examples=256, deadline=None)
@given(st.integers(1, 8), st.integers(1, 24), durations, durations)
def test_gpipe_and_1f1b_lose_p_minus_1_micro_batches(
    p: int, m: int, forward: float, backward: float
) -> None:
    expected = (m + p - 1) * (forward + backward)
    for schedule in (GPipe(), OneFOneB()):
        got = play(schedule, p, m, {"F": forward, "B": backward})
        assert math.isclose(got, expected, rel_tol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), durations, durations)
def test_interleaving_divides_the_bubble_by_the_chunks(
    p: int, rounds: int, v: int, forward: float, backward: float
) -> None:
    m = p * rounds
    got = play(Interleaved1F1B(chunks=v), p, m, {"F": forward, "B": backward})
    expected = (m + (p - 1) / v) * (forward + backward)
    assert math.isclose(got, expected, rel_tol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), durations, st.floats(0, 1), st.floats(0, 1))
def test_zb1p_fills_the_bubble_with_the_gradients_of_weights(
    p: int, rounds: int, forward: float, inputs: float, weights: float
) -> None:
    """(p-1)(F + I - W) of bubble, where W is no longer than I and I no longer than F."""
    m, i = p * rounds, forward * inputs
    w = i * weights
    got = play(ZB1P(), p, m, {"F": forward, "I": i, "W": w})
    assert math.isclose(got, m * (forward + i + w) + (p - 1) * (forward + i - w), rel_tol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(0, 8), durations, st.floats(0, 1), st.floats(0, 1))
def test_zb2p_leaves_the_first_rank_the_bubble_of_its_paper(
    p: int, more: int, forward: float, inputs: float, weights: float
) -> None:
    """(p-1)(F + I - 2W) on rank 0, which begins (p-1)F before the last rank and ends behind it."""
    m, i = 2 * p - 1 + more, forward * inputs
    w = i * weights
    got = play(ZB2P(), p, m, {"F": forward, "I": i, "W": w})
    late = (p - 1) * max(forward, forward + i - 2 * w)
    assert math.isclose(got, m * (forward + i + w) + late, rel_tol=1e-9)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 3), st.integers(0, 3), durations, st.floats(0, 1))
def test_dualpipe_has_the_bubble_of_its_paper(
    half: int, more: int, forward: float, weights: float
) -> None:
    """(p/2-1)(F&B + B - 3W), where a block takes as long as its parts, and F as long as I."""
    p, w = 2 * half, forward * weights
    m, b = 2 * (p + more), forward + w
    got = play(DualPipe(), p, m, {"F": forward, "I": forward, "W": w, "B": b})
    bubble = (half - 1) * (forward + b + b - 3 * w)
    assert math.isclose(got, m * (forward + b) + bubble, rel_tol=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 8), st.integers(1, 12), durations, durations)
def test_naive_uses_one_rank_at_a_time(p: int, m: int, forward: float, backward: float) -> None:
    got = play(Naive(), p, m, {"F": forward, "B": backward})
    assert math.isclose(got, m * p * (forward + backward), rel_tol=1e-12)


# -- the lists ------------------------------------------------------------------------------------


def test_the_order_of_1f1b() -> None:
    lists = [spell(acts, 1) for acts in OneFOneB().lists(4, 8)]
    assert lists[0] == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert lists[1] == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7"
    assert lists[3] == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"


def test_the_order_of_interleaved_1f1b() -> None:
    first, second = (spell(acts, 2) for acts in Interleaved1F1B(chunks=2).lists(2, 4))
    assert first == "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"
    assert second == "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"


def test_the_order_of_zb1p() -> None:
    lists = [spell(acts, 1) for acts in ZB1P().lists(4, 8)]
    assert lists[0].startswith("F0 F1 F2 F3 I0 W0 F4 I1 W1")
    assert lists[3].startswith("F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1")


def test_the_order_of_gpipe_and_of_naive() -> None:
    assert {spell(acts, 1) for acts in GPipe().lists(3, 3)} == {"F0 F1 F2 B0 B1 B2"}
    assert {spell(acts, 1) for acts in Naive().lists(3, 2)} == {"F0 B0 F1 B1"}


@pytest.mark.parametrize(
    ("schedule", "peaks"),
    [
        (Naive(), [1, 1, 1, 1]),
        (GPipe(), [8, 8, 8, 8]),
        (OneFOneB(), [4, 3, 2, 1]),
        (Interleaved1F1B(chunks=2), [11, 9, 7, 5]),
        (Interleaved1F1B(chunks=4), [19, 17, 15, 13]),
        (ZB1P(), [4, 4, 4, 4]),
        (ZB2P(), [7, 7, 7, 7]),
        (DualPipeV(), [9, 9, 9, 9]),
        (DualPipe(), [5, 5, 5, 5]),
    ],
    ids=lambda value: name(value) if isinstance(value, Schedule) else "",
)
def test_chunks_in_flight_with_four_ranks_and_eight_micro_batches(
    schedule: Schedule, peaks: list[int]
) -> None:
    assert [peak_in_flight(acts) for acts in schedule.lists(4, 8)] == peaks


def taken(schedule: Schedule, ranks: int, micro_batches: int) -> bool:
    try:
        schedule.lists(ranks, micro_batches)
    except Refused:
        return False
    return True


shapes = (st.sampled_from(SCHEDULES), st.integers(1, 9), st.integers(1, 40))


@settings(max_examples=200, deadline=None)
@given(*shapes)
def test_every_stage_and_micro_batch_is_run_once_and_in_a_possible_order(
    schedule: Schedule, p: int, m: int
) -> None:
    if not taken(schedule, p, m):
        return
    lists = schedule.lists(p, m)
    parts = {"F": "F", "B": "IW", "I": "I", "W": "W"}
    done = Counter(
        (act.stage, part, act.micro_batch)
        for acts in lists
        for act in acts
        for part in parts[act.kind]
    )
    each = [range(k * m // schedule.pipes, (k + 1) * m // schedule.pipes) for k in range(2)]
    stages = range(p * schedule.chunks)
    own = {s: each[s // schedule.stages(p)] if schedule.pipes > 1 else range(m) for s in stages}
    every = [(s, k, i) for s in stages for k in "FIW" for i in own[s]]
    assert done == Counter(every)
    for rank, acts in enumerate(lists):
        assert {schedule.rank_of(act.stage, p) for act in acts} == {rank}
    busy = m * (EVEN["F"] + EVEN["B"])
    assert play(schedule, p, m, EVEN) >= busy * (1 - 1e-12)  # the play ends: nobody waits forever


@settings(max_examples=200, deadline=None)
@given(*shapes)
def test_chunks_in_flight_stay_within_their_bounds(schedule: Schedule, p: int, m: int) -> None:
    """Chunks of 1/v of a stage each; what a schedule saves in memory is its point."""
    if not taken(schedule, p, m):
        return
    v = schedule.chunks
    peaks = [peak_in_flight(acts) for acts in schedule.lists(p, m)]
    exact: dict[type[Schedule], Callable[[int], int]] = {
        Naive: lambda r: 1,
        GPipe: lambda r: m,
        LoopedBFS: lambda r: m * v,
        OneFOneB: lambda r: min(m, p - r),
    }
    if type(schedule) in exact:
        assert peaks == [exact[type(schedule)](r) for r in range(p)]
    elif isinstance(schedule, Interleaved1F1B) and m % p == 0:
        assert peaks == [min((v - 1) * p + 2 * (p - 1 - r) + 1, m * v) for r in range(p)]
    elif isinstance(schedule, ZB1P) and m % p == 0:
        assert peaks == [min((v - 1) * p + p, m * v)] * p
    elif isinstance(schedule, ZBV):
        assert all(peak <= min(2 * p, 2 * m) for peak in peaks)
    elif isinstance(schedule, ZB2P):
        assert all(peak <= min(2 * p - 1, m) for peak in peaks)
    elif isinstance(schedule, DualPipe):
        assert peaks == [p + 1] * p
    elif isinstance(schedule, DualPipeV):
        assert all(peak <= 2 * p + 1 for peak in peaks)


# -- torch's tables -------------------------------------------------------------------------------


def torch_order(cls: Any, ranks: int, micro_batches: int, chunks: int) -> Any:
    """torch's list of every rank, without its idle slots; None where torch refuses.

    The schedule's constructor lays the lists out for all ranks; of its stages it asks no more
    than how many there are.
    """
    shape = {"num_stages": ranks * chunks, "group_size": ranks, "group_rank": 0, "submod": None}
    stages = [SimpleNamespace(stage_index=c * ranks, **shape) for c in range(chunks)]
    try:
        order = cls(stages, micro_batches).pipeline_order
    except ValueError:
        return None
    return [[action for action in order[rank] if action] for rank in range(ranks)]


def flat(action: Any) -> list[Act]:
    """A forward beside a backward as one after the other."""
    if action.sub_actions:
        return [act for part in action.sub_actions for act in flat(part)]
    return [Act(action.stage_index, action.computation_type.value, action.microbatch_index)]


class Recorder:
    """Stands for torch's stage and writes down what the schedule asks of it."""

    is_first = is_last = False
    has_backward = True

    def __init__(self, rank: int, ranks: int) -> None:
        self.stage_index, self.num_stages = rank, ranks
        self.acts: list[Act] = []

    def forward_one_chunk(self, micro_batch: int, *rest: Any, **more: Any) -> None:
        self.acts.append(Act(self.stage_index, "F", micro_batch))

    def backward_one_chunk(self, micro_batch: int, **rest: Any) -> None:
        self.acts.append(Act(self.stage_index, "B", micro_batch))

    def nothing(self, *rest: Any, **more: Any) -> list[Any]:
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = nothing
    perform_reduce_grad = nothing


def torch_steps(cls: Any, ranks: int, micro_batches: int) -> list[list[Act]] | None:
    """What every rank runs in torch's own step loop; None where torch refuses."""
    quiet = type(cls.__name__, (cls,), {"_initialize_stage": lambda self, *rest: None})
    stages = [Recorder(rank, ranks) for rank in range(ranks)]
    try:
        for stage in stages:
            quiet(stage, micro_batches)._step_microbatches()
    except ValueError:
        return None
    return [stage.acts for stage in stages]


SIZES = [(p, m) for p in (2, 4, 8) for m in range(1, 17)]


@pytest.mark.parametrize(
    ("schedule", "cls"),
    [
        *((Interleaved1F1B(chunks=v), torch_schedules.ScheduleInterleaved1F1B) for v in (1, 2, 3)),
        *((ZB1P(chunks=v), torch_schedules.ScheduleInterleavedZeroBubble) for v in (1, 2, 3)),
        *((LoopedBFS(chunks=v), torch_schedules.ScheduleLoopedBFS) for v in (1, 2, 3)),
        (ZBV(), torch_schedules.ScheduleZBVZeroBubble),
        (DualPipeV(), torch_schedules.ScheduleDualPipeV),
    ],
    ids=lambda value: name(value) if isinstance(value, Schedule) else value.__name__,
)
def test_every_rank_runs_the_list_of_torch(schedule: Schedule, cls: Any) -> None:
    compared = 0
    for p, m in SIZES:
        order = torch_order(cls, p, m, schedule.chunks)
        assert (order is not None) == taken(schedule, p, m), (p, m)
        if order is not None:
            table = [[act for action in actions for act in flat(action)] for actions in order]
            assert [list(acts) for acts in schedule.lists(p, m)] == table, (p, m)
            compared += 1
    assert compared >= 16


@pytest.mark.parametrize("m", range(1, 17))
@pytest.mark.parametrize("p", [2, 4, 8])
def test_the_step_loops_of_torch_run_the_same_lists(p: int, m: int) -> None:
    gpipe = torch_steps(torch_schedules.ScheduleGPipe, p, m)
    assert [list(acts) for acts in GPipe().lists(p, m)] == gpipe
    one_f_one_b = torch_steps(torch_schedules.Schedule1F1B, p, m)
    assert (one_f_one_b is None) == (m < p)  # dpsim takes fewer micro-batches, as Megatron does
    if one_f_one_b is not None:
        assert [list(acts) for acts in OneFOneB().lists(p, m)] == one_f_one_b


def test_dualpipe_v_overlaps_the_pairs_that_torch_overlaps() -> None:
    for p, m in [(1, 2), (2, 4), (4, 8), (4, 11), (8, 16)]:
        order = torch_order(torch_schedules.ScheduleDualPipeV, p, m, 2)
        assert order is not None
        for rank in range(p):
            acts = DualPipeV().lists(p, m)[rank]
            mine = [list(acts[i : i + 2]) for i in sorted(DualPipeV().blocks(rank, p, m))]
            assert mine == [flat(action) for action in order[rank] if action.sub_actions]


def test_dualpipe_runs_the_lists_of_its_authors() -> None:
    for run in json.loads(DUALPIPE.read_text("utf-8"))["runs"]:
        p, m = run["ranks"], run["micro_batches"]
        for rank, (acts, wanted) in enumerate(
            zip(DualPipe().lists(p, m), run["lists"], strict=True)
        ):
            assert spell(acts, 2) == wanted["acts"]
            assert sorted(DualPipe().blocks(rank, p, m)) == wanted["blocks"]


# -- what is refused ------------------------------------------------------------------------------


def test_uneven_rounds_are_refused_and_the_next_numbers_named() -> None:
    for schedule in (Interleaved1F1B(), ZB1P()):
        with pytest.raises(Refused, match=r"9 micro-batches.* 8 and 10 are accepted") as error:
            schedule.lists(4, 9)
        assert "multiple of 4" in str(error.value)
        assert taken(schedule, 4, 8)
        assert taken(schedule, 4, 10)


def test_dualpipe_v_needs_a_micro_batch_per_stage() -> None:
    with pytest.raises(Refused, match="at least 8"):
        DualPipeV().lists(4, 7)
    assert taken(DualPipeV(), 4, 8)


def test_dualpipe_needs_pairs_of_ranks_and_of_micro_batches() -> None:
    with pytest.raises(Refused, match="not 3; 2 and 4 are accepted"):
        DualPipe().lists(3, 12)
    for few in (6, 9):
        with pytest.raises(Refused, match="even numbers from 8 on"):
            DualPipe().lists(4, few)


@each
def test_lists_of_nothing_and_of_too_much_are_refused(schedule: Schedule) -> None:
    with pytest.raises(Refused, match="0 pipeline ranks"):
        schedule.lists(0, 4)
    with pytest.raises(Refused, match="0 micro-batches"):
        schedule.lists(4, 0)
    with pytest.raises(Refused, match=r"at most [\d,]+ micro-batches are accepted"):
        schedule.lists(4, MAX_ACTS)


@pytest.mark.parametrize("kind", plugins.names("schedules"))
def test_every_schedule_is_known_by_its_file_and_checks_its_knobs(kind: str) -> None:
    plugin = plugins.Plugin("schedules", "kind")
    schedule = plugin.make({"kind": kind}, file=True)
    assert isinstance(schedule, Schedule)
    assert plugins.name_of(schedule) == kind
    with pytest.raises(Refused):
        plugin.make({"kind": kind, "chunks": 0}, file=True)


@each
def test_a_pipeline_of_one_rank_has_no_bubble(schedule: Schedule) -> None:
    """Nor have two pipelines of two ranks."""
    busy = 8 * (EVEN["F"] + EVEN["B"])
    assert play(schedule, schedule.pipes, 8, EVEN) == pytest.approx(busy, rel=1e-12)


def test_lists_are_spelt_with_stages_where_a_rank_holds_several() -> None:
    acts: Sequence[Act] = (Act(0, "F", 0), Act(2, "I", 1), Act(2, "W", 1))
    assert spell(acts, 1) == "F0 I1 W1"
    assert spell(acts, 2) == "0F0 2I1 2W1"


# -- extending and showing ------------------------------------------------------------------------


@pytest.fixture
def eager(tmp_path: Path) -> Iterator[Schedule]:
    """The schedule of the how-to page, as if its file lay in the package."""
    page = (HOWTO / "add-a-schedule.md").read_text("utf-8")
    code = r"`dpsim/compile/schedules/(\w+)\.py`:\n\n```python\n(.*?)```"
    found = re.search(code, page, re.DOTALL)
    assert found is not None
    (tmp_path / f"{found[1]}.py").write_text(found[2], encoding="utf-8")
    package = importlib.import_module("dpsim.compile.schedules")
    package.__path__.append(str(tmp_path))
    plugins.names.cache_clear()
    importlib.invalidate_caches()
    yield plugins.find("schedules", found[1])()
    plugins.names.cache_clear()
    package.__path__.remove(str(tmp_path))
    sys.modules.pop(f"dpsim.compile.schedules.{found[1]}", None)
    vars(package).pop(found[1], None)


def test_a_schedule_is_one_file(eager: Schedule) -> None:
    assert [peak_in_flight(acts) for acts in eager.lists(4, 8)] == [7, 5, 3, 1]
    assert play(eager, 4, 8, EVEN) == pytest.approx(33.0, rel=1e-12)
    late = play(eager, 4, 8, EVEN, latency=0.1)
    assert play(GPipe(), 4, 8, EVEN, latency=0.1) <= late
    assert late < play(OneFOneB(), 4, 8, EVEN, latency=0.1)


def test_show_lists_the_schedules_and_prints_one(cli: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = cli("show", "schedules")
    assert code == 0
    assert all(kind in out for kind in plugins.names("schedules"))
    code, out, _ = cli("show", "one_f_one_b")
    assert code == 0
    for acts in OneFOneB().lists(4, 8):
        assert spell(acts, 1) in out
    code, _, err = cli("show", "one_f_one_c")
    assert code == 2
    assert "one_f_one_b" in err
