"""Parameter servers: who waits for whom, how stale gradients are, and where it saturates."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import dpsim
from dpsim.compile.strategies._server_state import placed
from dpsim.compile.timeline import remainder
from dpsim.core import constants
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.predict.document import from_json, to_json
from dpsim.predict.explanation import Explained
from dpsim.predict.point import Asynchrony, Point
from dpsim.predict.prediction import predict
from dpsim.report.sentences import sentences


def point(
    ranks: int = 2, *, sets: dict[str, Any] | None = None, slow: dict[int, float] | None = None,
    parameters: Any = 1, **strategy: Any,
) -> Point:  # fmt: skip
    """The only point of a toy: a second of backward and no network, unless `sets` says so."""
    layer = {"name": "body", "parameters": parameters, "forward": "0 s", "backward": "1 s"}
    data: dict[str, Any] = {
        "model": {"layers": [layer]},
        "cluster": {"ranks": ranks},
        "collective": {"backend": "free"},
        "strategy": {"kind": "parameter_server", **strategy},
        "optimizer": {"kind": "none"},
        "variability": {"slow_ranks": slow or {}},
        **(sets or {}),
    }
    data = {key: value for key, value in data.items() if value is not None}
    found = predict(load(data, Path(), "toy")).points[0]
    assert isinstance(found, Point)
    return found


def told(found: Point) -> Asynchrony:
    assert found.asynchrony is not None
    return found.asynchrony


# -- who waits for whom ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "clocks"),
    [("ssp_0", (5, 5)), ("ssp_1", (6, 5)), ("ssp_3", (8, 5)), ("async", (10, 5))],
)
def test_a_worker_is_ahead_by_its_bound_at_most(name: str, clocks: tuple[int, ...]) -> None:
    """One second and two seconds a clock, for ten seconds (Ho et al. 2013)."""
    found = dpsim.predict(f"worked/{name}").points[0]
    assert isinstance(found, Point)
    assert told(found).clocks == clocks
    assert found["clocks"] == list(clocks)
    assert found.step_time_s == pytest.approx(2 * 10.0 / sum(clocks))
    assert found.throughput_per_s == pytest.approx(sum(clocks) / 10.0)


def test_in_the_long_run_a_bound_brings_all_to_the_slowest_s_pace() -> None:
    assert point(mode="ssp", bound=2, slow={1: 2.0}).step_time_s == pytest.approx(2.0, rel=0.02)
    assert point(mode="async", slow={1: 2.0}).step_time_s == pytest.approx(4 / 3)


FIVE = {1: 1.1, 2: 1.2, 3: 1.3, 4: 4.0}


def test_an_update_takes_the_first_gradients_and_drops_those_that_come_too_late() -> None:
    """Four of five: 1.3 s, as backup workers; all five: 4 s (Chen et al., arXiv:1604.00981)."""
    backup = point(5, mode="sync", aggregate=4, slow=FIVE)
    assert (backup.step_time_s, backup.global_batch) == (pytest.approx(1.3), 4)
    assert backup.throughput_per_s == pytest.approx(4 / 1.3)
    assert told(backup).wasted == pytest.approx(1 / (1 + 4 * 4.0 / 1.3), rel=0.1)
    whole = point(5, mode="sync", slow=FIVE)
    assert (whole.step_time_s, told(whole).wasted) == (pytest.approx(4.0), 0.0)
    assert whole.bottleneck == "stragglers"


@pytest.mark.parametrize(
    ("aggregate", "times"),
    [(3, 2.0), (4, 3.0), (5, 4.0)],  # of two workers, 1 s and 4 s, the fast one gives the rest
)
def test_an_update_counts_gradients_and_not_workers(aggregate: int, times: float) -> None:
    found = point(2, mode="sync", aggregate=aggregate, slow={1: times})
    assert found.step_time_s == pytest.approx(times)
    assert found.global_batch == aggregate
    assert found.throughput_per_s == pytest.approx(aggregate / times)


@pytest.mark.parametrize(
    ("times", "aggregate", "own", "queue", "wasted"),
    [
        # the queue brings updates after 1.2, 2.4, 4.2, 5.7, 7.2 s: of the tokens of the first two a
        # fast worker takes the slow one's, and of four gradients one then comes too late
        ((1.0, 1.1, 1.2, 9.0), 3, 1.2, 1.5, 0.25),
        # the contract of backups is that of tokens of one's own
        ((1.0, 1.1, 1.2, 1.3, 4.0), 4, 1.3, 1.53, 0.2),
        ((1.0, 1.4, 1.9, 2.6), 4, 2.6, 2.6, 0.0),  # nothing to drop where all are needed
    ],
)
def test_from_one_queue_fast_workers_take_the_tokens_of_slow_ones(
    times: tuple[float, ...], aggregate: int, own: float, queue: float, wasted: float
) -> None:
    """By hand: a FIFO queue (TensorFlow's SyncReplicasOptimizer), or a token each (Chen et al.)."""
    slow = {rank: factor for rank, factor in enumerate(times) if factor != 1.0}
    found = {
        tokens: point(len(times), mode="sync", aggregate=aggregate, tokens=tokens, slow=slow)
        for tokens in ("own", "queue")
    }
    assert found["own"].step_time_s == pytest.approx(own)
    assert found["queue"].step_time_s == pytest.approx(queue, rel=2e-3)
    assert told(found["queue"]).wasted == pytest.approx(wasted, abs=2e-3)
    early = point(
        len(times), mode="sync", aggregate=aggregate, tokens="queue", slow=slow,
        sets={"horizon": "5 s"},
    )  # fmt: skip
    assert early["updates_per_s"] * 5 == {9.0: 3, 4.0: 3, 2.6: 1}[times[-1]]


def test_nobody_is_faster_for_waiting_more() -> None:
    """With common draws and servers that nobody queues for: BSP >= SSP(s) >= SSP(s+1) >= async."""
    varied = {"variability": {"jitter": {"kind": "exponential", "tail": 1.0}, "steps": 40}}
    bounds = [{"mode": "ssp", "bound": s} for s in (0, 1, 2, 5)]
    found = [point(4, sets=varied, **knobs) for knobs in (*bounds, {"mode": "async"})]
    bsp = point(4, sets=varied, mode="sync")
    ends = [told(one).played_s for one in (bsp, *found)]
    assert ends == sorted(ends, reverse=True)
    assert ends[0] == pytest.approx(ends[1])
    assert ends[0] > 1.2 * ends[-1]


# -- staleness ------------------------------------------------------------------------------------


def test_a_gradient_is_as_stale_as_others_are_many_and_fast() -> None:
    """N-1 updates between equal workers; of worker i the sum of the others' speeds over its own."""
    even = told(point(5, mode="async", sets={"variability": {"jitter": "5 %"}}))
    assert even.staleness is not None
    assert even.staleness.mean == pytest.approx(4.0, rel=0.02)
    assert even.updates_per_s == pytest.approx(5.0, rel=0.05)
    uneven = told(point(3, mode="async", slow={1: 2.0, 2: 3.1}))
    assert uneven.staleness is not None
    speeds = [1.0, 1 / 2.0, 1 / 3.1]
    expected = [(sum(speeds) - own) / own for own in speeds]
    assert uneven.staleness.per_worker == pytest.approx(expected, rel=0.05)


# -- servers and their links ----------------------------------------------------------------------

CABLE = {"collective": {"backend": "ideal_ring", "bandwidth": "1 GB/s"}}


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("servers", "sizes", "seconds"),
    [
        (1, [250_000_000], 16.0),  # 8 workers push and pull 1 GB at one link of 1 GB/s
        (4, [250_000_000], 16.0),  # one variable is a hot spot
        (4, [62_500_000] * 4, 4.0),  # four are not
    ],
)
def test_the_busiest_server_s_link_sets_the_pace(
    servers: int, sizes: list[int], seconds: float, mode: str
) -> None:
    """2 N f S / B, f the part of the bytes on the busiest server, where equal workers come at once;
    they compute for 1 s."""
    found = point(8, sets=CABLE, parameters=sizes, servers=servers, mode=mode)
    assert found.step_time_s == pytest.approx(1.0 + seconds)
    assert found.bottleneck == "server"
    use = max(told(found).servers, key=lambda one: one.bytes)
    assert use.bytes == pytest.approx(max(sizes) * 4)
    assert use.received == pytest.approx(0.5 * seconds / (1.0 + seconds))


def test_a_variable_that_is_cut_has_no_hot_spot() -> None:
    whole = point(8, sets=CABLE, parameters=[250_000_000], servers=4)
    cut = point(8, sets=CABLE, parameters=[250_000_000], servers=4, max_shards=4)
    assert [one.bytes for one in told(cut).servers] == [250_000_000.0] * 4
    assert cut.step_time_s < 0.5 * whole.step_time_s


@pytest.mark.parametrize(
    ("size", "shape", "most", "shards"),
    [
        (24, [6, 1], 2, 2),  # the two examples of sharded_variable_test.py
        (24, [6, 1], 10, 6),
        (40, [2, 5], 4, 2),  # no more than the first axis has
        (26, [13], 4, 4),
        (6, [3], 4, 2),  # rounded up
    ],
)
def test_a_variable_is_cut_as_tensorflow_cuts_it(
    size: int, shape: list[int], most: int, shards: int
) -> None:
    held = placed([(size, shape)], 16, most, 4.0).bytes
    rows = [part / size * shape[0] for part in held if part]
    assert len(rows) == shards
    assert sum(rows) == pytest.approx(shape[0])
    assert rows == pytest.approx([round(row) for row in rows])


def test_a_single_worker_s_own_link_is_not_the_servers_doing() -> None:
    """Four shards that share its link."""
    found = point(1, sets=CABLE, parameters=[250_000_000], servers=4, max_shards=4)
    assert told(found).spent["server"] == 0.0
    assert found.bottleneck != "server"


@pytest.mark.parametrize("jitter", [0.0, 0.05])
def test_more_bandwidth_slows_nobody_down(jitter: float) -> None:
    """Where a server's host, and not the network, is what its replies share."""
    took = []
    for bandwidth in (50, 150, 400) if not jitter else (150, 400):
        sets = {
            "model": {"layers": [{"name": "body", "parameters": 138_000_000, "forward": "0 s",
                                  "backward": "338 ms"}]},
            "cluster": {"machine": "rack-10gbe", "ranks": 8,
                        "inter_node_bandwidth": f"{bandwidth} Gbit/s"},
            "collective": {"backend": "nccl"},
            "variability": {"jitter": jitter, "steps": 12} if jitter else {},
            "compute": {"spread": 0},
        }  # fmt: skip
        took.append(point(sets=sets, mode="async").step_time_s)
    assert all(more <= 1.01 * less for less, more in pairwise(took)), took
    # compute, parameters and gradients over two connections, the server's update, and a tenth
    moved = 138_000_000 * 4 / (2 * constants.shipped("nccl")["ethernet.flow"].value)
    assert took[-1] < 0.338 + 2.1 * moved + 0.0552 + 0.1


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_a_server_with_a_lock_serves_one_after_the_other(workers: int) -> None:
    """One second of compute, half of one at the server: 1.5 s until it is saturated."""
    found = point(workers, service="0.5 s", lock="shard", mode="async")
    assert found.step_time_s == pytest.approx(max(1.5, 0.5 * workers))
    use = told(found).servers[0]
    assert use.busy == pytest.approx(min(0.5 * workers / 1.5, 1.0), abs=0.1)
    free = point(workers, service="0.5 s", mode="async")
    assert free.step_time_s == pytest.approx(1.5)
    assert found.bottleneck == ("server" if workers > 4 else "compute")


@pytest.mark.parametrize(("horizon", "sent", "of"), [(None, 4, 9), ("9.5 s", 4.5, 9.5)])
def test_a_server_has_sent_what_has_left_it_and_no_more(
    horizon: str | None, sent: float, of: float
) -> None:
    """4 workers pull for 4 s, compute for 1 s and push for 4 s; then all pull again."""
    ring = {"backend": "ideal_ring", "latency": "0 s", "bandwidth": "1 GB/s"}
    sets = {"collective": ring, "horizon": horizon, "variability": None}
    found = point(4, sets=sets, mode="sync", parameters=250_000_000)
    use = told(found).servers[0]
    assert (use.sent, use.received) == (pytest.approx(sent / of), pytest.approx(4 / of))


@pytest.mark.parametrize(("mode", "seconds"), [("async", 1.2), ("sync", 1.4)])
def test_only_a_synchronous_update_takes_time_beside_adding_up(mode: str, seconds: float) -> None:
    """0.4 GB at 2 GB/s: gradients are added up in 0.2 s; parameters are updated in as long."""
    found = point(3, parameters=100_000_000, mode=mode, apply="2 GB/s")
    assert found.step_time_s == pytest.approx(seconds)


def test_servers_on_a_machine_have_nodes_of_their_own_unless_they_share() -> None:
    sets = {
        "cluster": {"machine": "rack-25gbe", "nodes": 2, "gpus_per_node": 1},
        "collective": {"backend": "gloo"},
        "optimizer": {"kind": "adam"},
        "horizon": "20 s",
    }
    sizes = [50_000_000] * 2
    apart = point(sets=sets, servers=2, parameters=sizes)
    beside = point(sets=sets, servers=2, parameters=sizes, colocated=True)
    assert (apart.ranks, apart.nodes) == (2, 2)
    assert beside.step_time_s < apart.step_time_s  # a half stays on the node
    assert apart.interval.low < apart.step_time_s < apart.interval.high
    assert apart.memory.parts.keys().isdisjoint({"optimizer states"})


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sets", "strategy", "said"),
    [
        ({}, {"mode": "ssp"}, "strategy.bound: is missing"),
        ({"collective": {"backend": "parameter_server"}}, {}, "has servers of its own"),
        ({"engine": "vectorised"}, {}, "workers decide while they run"),
        ({"detail": "rounds"}, {}, "detail: is not modelled for parameter_server"),
        ({"iteration": 3}, {}, "iteration: is not modelled for parameter_server"),
        ({"batch": {"global": 4}}, {"mode": "sync", "aggregate": 1}, "give batch.per_device, not"),
        (
            {
                "model": {"layers": [{"name": "e", "parameters": 8, "forward": "0 s",
                                      "backward": "1 s", "experts": 2, "experts_per_token": 1}]},
                "parallel": {"expert": 2},
            },
            {},
            "not modelled with tensor, pipeline or expert parallelism",
        ),
        ({"horizon": "0.5 s"}, {}, "no update was made in 0.5 s"),
        ({"horizon": "10 s", "strategy": {"kind": "ddp"}}, {}, "horizon: every step of ddp is"),
        ({"horizon": "1000000000 s"}, {}, "to play; a single play may take"),
    ],
)  # fmt: skip
def test_what_does_not_apply_is_refused(
    sets: dict[str, Any], strategy: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        point(sets=sets, **strategy)


# -- what other commands make of it ---------------------------------------------------------------


def test_an_explanation_says_what_makes_sense_of_workers_apart() -> None:
    """Operations of the slowest worker's last clock, what-ifs and blame; no one critical path."""
    found = dpsim.predict("worked/ssp_3").explain().points[0]
    assert isinstance(found, Explained)
    assert found.critical_rank == 1
    assert found.critical_path == ()
    mine = [one for one in found.operations if one.rank == 1 and one.op == "compute"]
    assert [(one.start_s, one.end_s) for one in mine] == [(0.0, 2.0)]
    gains = {one.change: one.step_time_s for one in found.what_if}
    assert gains["no stragglers"] == pytest.approx(1.0)
    assert found.blame.causes[0].cause == "slow_ranks[1]"


def test_answers_are_read_back_as_they_were_written() -> None:
    found = dpsim.predict("worked/async").points[0]
    assert from_json(Point, to_json(found)) == found
    assert to_json(found)["staleness"]["per_worker"] == [0.5, 1.8]


def test_replies_leave_a_server_in_turn_so_that_workers_come_apart() -> None:
    """Four equal workers at one server over gloo: 50 ms of compute, 11 ms for a message each way.
    Side by side for ever they would take 50 + 2 x 4 x 11 ms."""
    sets = {
        "model": {"layers": [{"name": "body", "parameters": 32_000, "forward": "0 s",
                              "backward": "50 ms"}]},
        "cluster": {"machine": "rack-25gbe", "nodes": 4, "gpus_per_node": 1,
                    "inter_node_bandwidth": "100 Mbit/s"},
        "collective": {"backend": "gloo"},
        "compute": {"spread": 0},
    }  # fmt: skip
    found = point(sets=sets)
    assert found.step_time_s == pytest.approx(0.050 + 2 * 0.011, rel=0.03)


def test_what_workers_made_of_their_time_is_told_in_a_sentence() -> None:
    told = " ".join(sentences(dpsim.predict("worked/ssp_1").answer))
    assert "updated 1.1 times a second; in 10 s workers ended 5 to 6 clocks" in told
    assert "0.6364 updates old in the mean (2 at 99 %)" in told


def test_more_gradients_than_workers_are_told_of() -> None:
    given = {"kind": "parameter_server", "mode": "sync", "aggregate": 3}
    data = {
        "model": {"layers": [{"name": "a", "parameters": 1, "forward": "0 s", "backward": "1 s"}]},
        "cluster": {"ranks": 2},
        "collective": {"backend": "free"},
        "strategy": given,
    }
    told = " ".join(predict(load(data, Path(), "toy")).warnings)
    assert "strategy.aggregate 3 is more than there are workers, 2" in told


def test_no_part_of_a_step_is_less_than_nothing_by_rounding() -> None:
    """0.3 - (0.1 + 0.2) is -6e-17 in binary; what is missing by more is shown as it is."""
    assert remainder(0.3, 0.1 + 0.2) == remainder(0.1 + 0.2, 0.3) == 0.0
    assert remainder(0.3, 0.2) == pytest.approx(0.1)
    assert remainder(0.3, 0.4) == pytest.approx(-0.1)
