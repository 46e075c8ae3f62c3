"""What holds for every scenario: laws of max-plus systems, identities of book-keeping, and that
there is either a checked number or one sentence that says why not.

Every test runs on scenarios that `generated` makes.  "Finish" is when the last step ends on the
slowest rank: that, not the length of a single step, is what the laws of max-plus systems are about.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated import Data, case_of, predicted, scenarios
from hypothesis import HealthCheck, assume, given, settings

from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.compile.critical import critical_path
from dpsim.compile.program import COMPUTE, RECEIVE, SEND, Cast, Op, Program
from dpsim.compile.timeline import Step, Timeline
from dpsim.core.record import Refused
from dpsim.describe.scenario import load, to_data
from dpsim.play import NotApplicable, Play, event, vectorised
from dpsim.predict.prediction import Prediction
from dpsim.report import canonical_json

BOTTLENECKS = {
    "compute", "memory_bandwidth", "intra_node_network", "inter_node_network", "network_latency",
    "pipeline_bubble", "stragglers", "data_loading", "storage", "host",
}  # fmt: skip
PARTS = ("compute_s", "exposed_communication_s", "bubble_s", "stall_s")
#: strategies that decide when to send by the clock: longer work may regroup what they send
BY_THE_CLOCK = ("horovod",)


def some(examples: int) -> Callable[[Any], Any]:
    """Settings of a test on so many scenarios, the same ones every time."""
    return settings(
        max_examples=examples, derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def accepted(data: Data) -> Prediction:
    """The prediction of `data`; scenarios that are refused are passed over."""
    try:
        return predicted(data)
    except Refused:
        assume(False)
        raise


def compiled(data: Data) -> tuple[Case, Play]:
    """The case of `data` and a short play of it, from the first step."""
    try:
        case = case_of(data)
        play = case.plays()[0]
        for role, program in enumerate(play.cast(0).programs):
            rank = play.cast(0).members(role)[0]
            for op in program.ops:
                if op.stream != COMPUTE:
                    play.costs.of(op, play.cast(0).peers(rank, op.group))
        play.factors(0)
    except Refused:
        assume(False)
        raise
    # all of its steps: a steady play ends where they repeat, and times from its start then differ
    return case, dataclasses.replace(play, steps=min(play.steps, 4), warmup=0, steady=False)


def max_plus(play: Play) -> Timeline:
    """`play` where it is a max-plus system: no link is shared and no compute is slowed."""
    assume(not play.contention)
    try:
        return vectorised.play(play)
    except NotApplicable:
        assume(False)
        raise


def finish(play: Play) -> float:
    return max_plus(play).last.finish


def at_least(value: float) -> float:
    """The least that counts as no smaller than `value`."""
    return value * (1 - 1e-9) - 1e-12


# -- the answer ---------------------------------------------------------------------


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers(item)]
    if isinstance(value, list):
        return [n for item in value for n in numbers(item)]
    return [value] if isinstance(value, float) else []


def check_refusal(error: Refused) -> None:
    """One sentence, no jargon, and it does not say that something went wrong inside."""
    assert str(error).strip()
    assert "\n" not in str(error)
    assert not re.search(r"Traceback|pydantic|NoneType|<class|object at 0x|\bnan\b", str(error))


def check_document(found: Prediction) -> None:
    """Every number is one; parts sum to the step; bounds and intervals hold it."""
    json.dumps(found.document, allow_nan=False)
    assert all(math.isfinite(n) for n in numbers(found.document))
    for point in found.points:
        assert "error" not in point
        time = point["step_time_s"]
        assert time >= 0
        assert sum(point[name] for name in PARTS) == pytest.approx(time, rel=1e-9, abs=1e-12)
        assert min(point[name] for name in PARTS) >= -1e-9 * time
        assert at_least(point["step_time_low_s"]) <= time
        assert at_least(time) <= point["step_time_high_s"]
        assert at_least(point["step_p50_s"]) <= point["step_p99_s"]
        assert at_least(point["bound_s"]) <= time
        assert point["bottleneck"] in BOTTLENECKS
        assert point["mfu"] is None or 0 < point["mfu"] <= 1
        assert min(point["memory_parts"].values(), default=0.0) >= 0
        assert sum(point["memory_parts"].values()) == pytest.approx(point["memory_bytes"])
        for name in ("bytes_sent_per_rank", "padding_bytes_per_rank", "control_bytes_per_rank"):
            assert point[name] >= 0


@some(50)
@given(scenarios())
def test_a_scenario_has_a_checked_answer_or_is_refused_in_a_sentence(data: Data) -> None:
    try:
        found = predicted(data)
    except Refused as error:
        check_refusal(error)
        return
    check_document(found)


@some(50)
@given(scenarios())
def test_a_scenario_reads_back_what_it_writes(data: Data) -> None:
    try:
        loaded = load(data, Path(), "generated")
    except Refused:
        return
    written = json.loads(json.dumps(to_data(loaded.scenario)))
    assert load(written, Path(), "generated").scenario == loaded.scenario


@some(20)
@given(scenarios())
def test_what_was_written_is_predicted_alike(data: Data) -> None:
    first = accepted(data)
    written = json.loads(canonical_json(first.document))["scenario"]
    assert canonical_json(predicted(written).document) == canonical_json(first.document)


@some(20)
@given(scenarios())
def test_the_order_of_points_changes_no_number(data: Data) -> None:
    """All but what is relative to the first point, and how much of a time budget was left."""
    cluster = data["cluster"]
    counts = [n for n in (1, 2, 4, 8) if "machine" not in cluster or n <= 2 * cluster["ranks"]]
    swept = data | {"sweep": [{"cluster.ranks": n} for n in counts]}
    mixed = data | {"sweep": [{"cluster.ranks": n} for n in reversed(counts)]}
    one, other = accepted(swept), predicted(mixed)

    def absolute(point: Data) -> Data:
        relative = ("speedup", "efficiency", "training_speedup", "engine_reason")
        return {k: v for k, v in point.items() if not k.startswith(relative)}

    assert [absolute(p) for p in one.points] == [absolute(p) for p in other.points[::-1]]


def test_hash_seeds_change_no_byte() -> None:
    """The document of a dozen scenarios, in processes with different PYTHONHASHSEED."""
    code = (
        "import generated\n"
        "from dpsim.core.record import Refused\n"
        "from dpsim.report import canonical_json\n"
        "for seed in range(100, 112):\n"
        "    try:\n"
        "        print(canonical_json(generated.predicted(generated.seeded(seed)).document))\n"
        "    except Refused as error:\n"
        "        print(error)\n"
    )
    here = Path(__file__).resolve().parent
    paths = os.pathsep.join((str(here), str(here.parent)))
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths},
        ).stdout
        for seed in ("0", "1", "77")
    }  # fmt: skip
    assert len(found) == 1
    assert found.pop().count("step_time_s") >= 6


# -- the timeline -------------------------------------------------------------------


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def audit(play: Play, timeline: Timeline) -> None:
    """Read the last step again: nothing starts before it can, everything takes as long as it must,
    no stream does two things at once, and everybody sees the same of what they do together."""
    step, factors = timeline.last, play.factors(play.steps - 1)
    for array in (*step.start, *step.end, *step.ready):
        assert np.isfinite(array).all()
    for rank in range(step.cast.ranks):
        audit_rank(play, step, rank, float(factors[rank]))
    for duration, split in zip(timeline.durations, timeline.splits, strict=True):
        assert split.total == pytest.approx(duration, rel=1e-9, abs=1e-12)
        assert min(split) >= at_least(0)


def audit_rank(play: Play, step: Step, rank: int, factor: float) -> None:
    role, column = step.place(rank)
    ops = step.cast.programs[role].ops
    start, end = step.start[role][:, column], step.end[role][:, column]
    busy: dict[str, float] = {}
    for i, op in enumerate(ops):
        gates = [float(end[k]) + op.delay for k in op.after]
        if op.stream == COMPUTE or play.costs.concurrency == 1:
            gates.append(busy.get(op.stream, 0.0))
        if op.operation != RECEIVE:
            assert float(start[i]) >= at_least(max(gates, default=0.0)), op.name
        took, least = float(end[i]) - float(start[i]), needed(play, step, rank, op, factor)
        assert took >= at_least(least) - 1e-9 * float(end[i]), op.name
        most = least * (1 + play.contention * op.scales)
        if op.stream == COMPUTE or play.costs.backend.ideal:
            assert took <= most * (1 + 1e-9) + 1e-9 * float(end[i]) + 1e-12, op.name
        busy[op.stream] = float(end[i])
        if op.kind == "collective":
            audit_collective(step, rank, i, op)


def needed(play: Play, step: Step, rank: int, op: Op, factor: float) -> float:
    """The least seconds of `op`."""
    if op.stream == COMPUTE:
        return op.seconds * (factor if op.scales else 1.0)
    return play.costs.of(op, step.cast.peers(rank, op.group)).seconds


def audit_collective(step: Step, rank: int, index: int, op: Op) -> None:
    """It starts and ends together on the whole group, when the last one has come."""
    own = step.cast.program(rank)
    key = (op.stream, op.group, own.ordinals[index])
    a, b = step.place(rank)
    for other in step.cast.peers(rank, op.group):
        c, d = step.place(other)
        i = places(step.cast.program(other))[key]
        assert step.start[a][index, b] == step.start[c][i, d], op.name
        assert step.end[a][index, b] == step.end[c][i, d], op.name
        assert step.start[a][index, b] >= at_least(float(step.ready[c][i, d])), op.name


@lru_cache(maxsize=64)
def places(program: Program) -> dict[tuple[str, str, int], int]:
    """Where what is said on a communicator stands, by its number there."""
    keys = ((op.stream, op.group) for op in program.ops)
    numbered = zip(keys, program.ordinals, strict=True)
    return {(*key, ordinal): i for i, (key, ordinal) in enumerate(numbered)}


def check_timelines(data: Data) -> None:
    _, play = compiled(data)
    by_events = event.play(play)
    audit(play, by_events)
    try:
        in_one_pass = vectorised.play(play)
    except NotApplicable:
        return
    audit(play, in_one_pass)
    for ours, theirs in (
        (by_events.durations, in_one_pass.durations),
        (by_events.splits, in_one_pass.splits),
        *zip(by_events.last.end, in_one_pass.last.end, strict=True),
        *zip(by_events.last.start, in_one_pass.last.start, strict=True),
    ):
        np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=1e-9, atol=1e-12)


@some(50)
@given(scenarios())
def test_both_engines_keep_the_rules_and_agree(data: Data) -> None:
    check_timelines(data)


@some(50)
@given(scenarios())
def test_the_first_steps_do_not_depend_on_how_many_follow(data: Data) -> None:
    """But for the last of them where links are shared: what it still sends is slowed by what the
    next step sends already."""
    _, play = compiled(data)
    longer = dataclasses.replace(play, steps=play.steps + 3)
    alone = play.steps
    try:
        durations = vectorised.play(longer).durations
        assert durations[:alone] == pytest.approx(vectorised.play(play).durations, rel=1e-9)
    except NotApplicable:
        alone -= 1
    durations = event.play(longer).durations
    assert durations[:alone] == pytest.approx(event.play(play).durations[:alone], rel=1e-9)


def talk(cast: Cast, rank: int) -> dict[tuple[str, str, tuple[int, ...]], list[Any]]:
    """What `rank` says on every communicator, in order."""
    found: dict[tuple[str, str, tuple[int, ...]], list[Any]] = {}
    for op in cast.program(rank).ops:
        if op.stream != COMPUTE:
            key = (op.stream, op.group, cast.peers(rank, op.group))
            operation = SEND if op.operation == RECEIVE else op.operation
            found.setdefault(key, []).append((operation, op.bytes, op.padding, op.repeats))
    return found


@some(50)
@given(scenarios())
def test_all_ranks_of_a_communicator_say_the_same_in_the_same_order(data: Data) -> None:
    """So what is sent is received, byte for byte."""
    case, _ = compiled(data)
    said = [talk(case.programs.asked, rank) for rank in range(case.ranks)]
    for rank, own in enumerate(said):
        for key, words in own.items():
            assert rank in key[2]
            assert all(said[other][key] == words for other in key[2])


# -- laws of max-plus systems -------------------------------------------------------


@some(50)
@given(scenarios(varied=0))
def test_longer_work_slower_links_and_later_ranks_never_end_a_run_earlier(data: Data) -> None:
    assume(data["strategy"]["kind"] not in BY_THE_CLOCK)
    case, play = compiled(data)
    first = finish(play)

    def stretched(**changes: float) -> float:
        other = case.plays(stretch=Stretch(**changes))[0]
        return finish(dataclasses.replace(other, steps=play.steps, warmup=0, steady=False))

    for changes in ({"compute": 1.7}, {"latency": 3.0}, {"transfer": 2.5}):
        assert stretched(**changes) >= at_least(first), changes
    ranks = len(play.factors(0))
    late = np.where(np.arange(ranks) == ranks // 2, 2.0, 1.0)
    later = dataclasses.replace(play, factors=lambda k: play.factors(k) * late)
    assert finish(later) >= at_least(first)


def with_op(cast: Cast, role: int, change: Callable[[Program], Program]) -> Cast:
    programs = list(cast.programs)
    programs[role] = change(programs[role])
    return dataclasses.replace(cast, programs=tuple(programs))


def compute_ops(program: Program) -> list[int]:
    return [i for i, op in enumerate(program.ops) if op.scales and op.seconds > 0]


@some(50)
@given(scenarios(varied=0))
def test_a_delay_of_d_costs_from_nothing_to_d_and_all_of_d_on_the_critical_path(data: Data) -> None:
    """One operation of a role is delayed in the last step; a chain of operations meets it once."""
    _, play = compiled(data)
    played = max_plus(play)
    last, step = play.steps - 1, played.last
    rank = step.critical_rank()
    role, program = step.cast.roles[rank], step.cast.program(rank)
    path = {(span.rank, span.name) for span in critical_path(step)}
    delay = 0.1 * step.duration + 1e-6
    for index in random.Random(7).sample(compute_ops(program), min(3, len(compute_ops(program)))):
        op = program.ops[index]

        def delayed(p: Program, index: int = index, op: Op = op) -> Program:
            ops = list(p.ops)
            ops[index] = op._replace(seconds=op.seconds + delay)
            return dataclasses.replace(p, ops=tuple(ops))

        changed = with_op(play.cast(last), role, delayed)
        other = dataclasses.replace(
            play, cast=lambda k, changed=changed: changed if k == last else play.cast(k)
        )
        factor = float(max(play.factors(last)))
        cost = finish(other) - step.finish
        slack = 1e-9 * step.finish + 1e-12
        assert -slack <= cost <= delay * factor + slack
        if (step.cast.rank_of(rank), op.name) in path and names_once(program, op.name):
            assert cost == pytest.approx(delay * float(play.factors(last)[rank]), rel=1e-6)


def names_once(program: Program, name: str) -> bool:
    return sum(op.name == name for op in program.ops) == 1


@some(50)
@given(scenarios())
def test_the_critical_path_leads_without_a_break_from_the_start_to_the_end(data: Data) -> None:
    """But for delays that an operation states; hosts and shared links have paths of their own."""
    case, play = compiled(data)
    assume(case.costs.concurrency == 1)
    step = max_plus(play).last
    assume(not any(program.host_matters for program in step.cast.programs))
    path, time = critical_path(step), step.duration
    assume(time > 0)
    assert path[-1].end == pytest.approx(time, rel=1e-9)
    assert path[0].start <= 1e-9 * step.finish
    gaps = {0.0} | {op.delay for program in step.cast.programs for op in program.ops}
    for a, b in pairwise(path):
        gap = b.start - a.end  # operations that take no time are not on the path
        assert min(abs(gap - known) for known in gaps) <= 1e-8 * step.finish


def split_in_two(program: Program, index: int) -> Program:
    """`program` with one operation cut in the middle."""

    def moved(k: int) -> int:
        return k + (k >= index)

    ops = []
    for i, op in enumerate(program.ops):
        after = tuple(moved(k) for k in op.after)
        if i == index:
            half = op._replace(seconds=op.seconds / 2, after=after)
            ops += [half, half._replace(after=(index,), delay=0.0, issue=0.0, after_step=False,
                                        blocks_host=False)]  # fmt: skip
        else:
            ops.append(op._replace(after=after))
    return Program(tuple(ops))


@some(50)
@given(scenarios())
def test_an_operation_cut_in_two_changes_nothing(data: Data) -> None:
    _, play = compiled(data)
    cast = play.cast(0)
    assume(compute_ops(cast.programs[0]))
    index = random.Random(3).choice(compute_ops(cast.programs[0]))
    assume(not cast.programs[0].ops[index].blocks_host)
    first = dataclasses.replace(play, cast=lambda k: cast)
    cut = with_op(cast, 0, lambda p: split_in_two(p, index))
    assert finish(dataclasses.replace(play, cast=lambda k: cut)) == pytest.approx(
        finish(first), rel=1e-9
    )


@some(50)
@given(scenarios(varied=0))
def test_a_step_takes_no_longer_than_everything_one_after_the_other(data: Data) -> None:
    _, play = compiled(data)
    cast = play.cast(0)
    one = dataclasses.replace(play, cast=lambda k: cast, steps=1)
    found = max_plus(one)
    factor = float(max(play.factors(0)))
    programs = [(rank, cast.program(rank)) for rank in range(cast.ranks)]
    roles = {}
    for rank, program in programs:
        roles.setdefault(cast.roles[rank], (rank, program))
    total = sum(
        op.delay + op.issue + needed(play, found.last, rank, op, factor)
        for rank, program in roles.values()
        for op in program.ops
    )
    assert found.last.finish <= total * (1 + 1e-9)


@some(50)
@given(scenarios(varied=0))
def test_which_of_equal_ranks_is_slow_does_not_matter(data: Data) -> None:
    assume("parallel" not in data and "global" not in data["batch"])
    ranks = data["cluster"]["ranks"]
    assume(ranks > 1)

    def slow(rank: int) -> Data:
        return data | {"variability": {"slow_ranks": {rank: 1.9}}}

    _, first = compiled(slow(0))
    one = max_plus(first)
    for rank in {1, ranks // 2, ranks - 1}:
        _, play = compiled(slow(rank))
        other = max_plus(play)
        assert other.durations == pytest.approx(one.durations, rel=1e-9)
        for mine, theirs in zip(one.last.end, other.last.end, strict=True):
            np.testing.assert_allclose(np.sort(mine, axis=1), np.sort(theirs, axis=1), rtol=1e-9)


# -- scenarios that mean the same ---------------------------------------------------


def times_scaled(value: Any, by: int) -> Any:
    """Every time of a toy multiplied and every rate divided, by a power of two."""
    if isinstance(value, dict):
        return {k: times_scaled(v, by) for k, v in value.items()}
    if isinstance(value, list):
        return [times_scaled(v, by) for v in value]
    found = re.fullmatch(r"([0-9.]+) (us|ms|GB/s)", value) if isinstance(value, str) else None
    if not found:
        return value
    number = float(found[1]) / by if found[2] == "GB/s" else float(found[1]) * by
    return f"{number} {found[2]}"


@some(50)
@given(scenarios(varied=0))
def test_all_times_twice_as_long_make_a_step_twice_as_long(data: Data) -> None:
    """Of toys whose strategy has no times of its own."""
    assume("machine" not in data["cluster"])
    assume(data["strategy"]["kind"] not in ("horovod", "data_parallel", "zero", "lightning",
                                            "accelerate", "ray_train"))  # fmt: skip
    first, other = accepted(data), predicted(times_scaled(data, 4))
    assert other.step_time_s == pytest.approx(4 * first.step_time_s, rel=1e-9)


def respelt(value: Any) -> Any:
    """The same quantities in other units."""
    if isinstance(value, dict):
        return {k: respelt(v) for k, v in value.items()}
    if isinstance(value, list):
        return [respelt(v) for v in value]
    found = re.fullmatch(r"([0-9.]+) (us|ms|kB|GB/s)", value) if isinstance(value, str) else None
    if not found:
        return value
    other = {"us": (1000, "ns"), "ms": (1000, "us"), "kB": (1000, "B"), "GB/s": (8, "Gbit/s")}
    times, unit = other[found[2]]
    return f"{float(found[1]) * times:g} {unit}" if "." not in found[1] else value


@some(50)
@given(scenarios())
def test_units_change_no_byte(data: Data) -> None:
    first = accepted(data)
    assert canonical_json(predicted(respelt(data)).document) == canonical_json(first.document)


@some(50)
@given(scenarios(varied=0))
def test_one_rank_talks_to_nobody(data: Data) -> None:
    assume(data.get("collective", {}).get("backend") != "parameter_server")  # its servers are apart
    alone = {k: v for k, v in data.items() if k not in ("parallel", "schedule", "stages")}
    alone["cluster"] = {**data["cluster"], "ranks": 1}
    alone["batch"] = {"per_device": 2, "accumulation": data["batch"].get("accumulation", 1)}
    point = accepted(alone).points[0]
    assert point["bytes_sent_per_rank"] == point["padding_bytes_per_rank"] == 0
    assert point["exposed_communication_s"] == pytest.approx(0, abs=1e-12)


# -- randomness ---------------------------------------------------------------------


@some(12)
@given(scenarios(varied=0))
def test_the_mean_of_random_steps_is_no_shorter_than_a_step_of_means(data: Data) -> None:
    """Jensen's inequality: a step is a convex function of its durations."""
    assume("machine" not in data["cluster"] and "iteration" not in data)
    assume(data["strategy"]["kind"] not in BY_THE_CLOCK)
    assume(data["cluster"]["ranks"] <= 8 and "backup_workers" not in data["strategy"])
    quiet = accepted(data).points[0]
    varied = {"jitter": {"kind": "gamma", "spread": 0.3}, "steps": 200}
    found = predicted(data | {"variability": varied, "engine": "auto"})
    played = found.outcomes[0].played
    assert played is not None
    durations = np.array(played.timeline.durations)
    error = durations.std(ddof=1) / math.sqrt(len(durations))
    assert quiet["step_time_s"] <= durations.mean() + 4.9 * error + 1e-12


@some(50)
@given(scenarios(varied=100))
def test_other_ranks_change_nobodys_draws(data: Data) -> None:
    assume("variability" in data and "parallel" not in data and "global" not in data["batch"])
    varied = data["variability"]
    assume("sequence_length" not in varied and "preset" not in varied and "pauses" not in varied)
    ranks = data["cluster"]["ranks"]
    more = data | {"cluster": {**data["cluster"], "ranks": 2 * ranks}}
    try:
        few, many = case_of(data).batches.variation, case_of(more).batches.variation
        drawn = [(few.factors(k), many.factors(k)) for k in range(3)]
    except Refused:
        assume(False)
        raise
    for one, other in drawn:
        np.testing.assert_array_equal(one, other[:ranks])


# -- what these tests have found ------------------------------------------------------------------


def test_a_table_tied_to_itself_on_one_rank_is_not_exchanged() -> None:
    """A V-shaped schedule has the first and the last stage on one rank: nothing to sum."""
    data = {
        "model": {
            "name": "transformer", "hidden": 256, "blocks": 4, "heads": 8, "sequence_length": 128,
            "vocabulary": 1000,
        },
        "cluster": {"machine": "four-rtx4090", "ranks": 4},
        "strategy": {"kind": "ddp"},
        "parallel": {"pipeline": 2},
        "stages": "balanced",
        "batch": {"accumulation": 4},
    }  # fmt: skip
    names = {}
    for kind in ("zbv", "looped_bfs"):
        case = case_of(data | {"schedule": {"kind": kind}})
        names[kind] = {
            op.name for p in case.programs.asked.programs for op in p.ops if "table" in op.name
        }
        check_timelines(data | {"schedule": {"kind": kind}})
    assert names == {"zbv": set(), "looped_bfs": {"table.0"}}


@pytest.mark.parametrize(("batch", "elsewhere"), [(8, 6), (7, 5), (5, 3)])
def test_uneven_parts_of_a_batch_are_scattered_alike(batch: int, elsewhere: int) -> None:
    """All ranks of DataParallel say the same though they compute on unequal parts."""
    layer = {"name": "a", "parameters": 9, "forward": "1 ms", "backward": "1 ms"}
    data = {
        "model": {"layers": [layer | {"activation": "3 MB"}]},
        "cluster": {"ranks": 4},
        "collective": {"backend": "ideal", "bandwidth": "1 GB/s"},
        "strategy": {"kind": "data_parallel"},
        "batch": {"global": batch},
    }
    check_timelines(data)
    cast = case_of(data).programs.asked
    sizes = {op.bytes for p in cast.programs for op in p.ops if op.name == "gather.0"}
    assert sizes == {elsewhere * 3e6}


@pytest.mark.parametrize(
    "strategy",
    [
        {"kind": "ddp", "torch": "2.4"},
        {"kind": "horovod", "horovod": "0.19"},
        {"kind": "zero", "reduce_bucket_size": 500_000_000.0},
    ],
    ids=str,
)
def test_what_the_campaign_wrote_and_could_not_read_is_predicted_alike(strategy: Data) -> None:
    """Versions are no lists of numbers, and a default size is the same number as a given one."""
    layer = {"name": "a", "parameters": 1000, "forward": "1 ms", "backward": "1 ms"}
    collective = {"backend": "free"}
    data = {"model": {"layers": [layer]}, "cluster": {"ranks": 2}, "collective": collective}
    inner: Any = test_what_was_written_is_predicted_alike
    inner.hypothesis.inner_test(data | {"strategy": strategy})
