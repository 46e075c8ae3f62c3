"""`dpsim plan`: what is found is right where the answer is known in closed form, holds when it is
simulated, and does not hold a little further on."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from toys import of_70_b

import dpsim
from dpsim.core import yamlfile
from dpsim.core.record import Refused
from dpsim.core.units import parse
from dpsim.describe.scenario import Loaded, load, read
from dpsim.planning.bench import Bench, bench_of
from dpsim.planning.choose import choose
from dpsim.planning.finding import Finding, document
from dpsim.planning.knobs import knob_of, sensible
from dpsim.planning.largest import largest
from dpsim.planning.planned import plan
from dpsim.planning.require import require
from dpsim.planning.search import edge, holds, largest_whole, pareto, run_of, spaced
from dpsim.planning.trials import BANDWIDTH, scanned, searched
from dpsim.planning.tune import tune, tune_axes
from dpsim.planning.wanted import Wanted, ends_of, parse_wanted
from dpsim.predict.prediction import predict
from dpsim.report.plan import FILES, columns_of, left_out, print_plan, write_plan
from dpsim.report.plan_picture import make_figure
from dpsim.report.plan_text import answer_text, question_text
from dpsim.report.sentences import headline

Cli = Callable[..., tuple[int, str, str]]

#: 8 ranks, 30 ms of compute, one bucket of 4 MB after backward: nothing overlaps
RING = """
model:
  dtype: fp32
  layers: [{name: a, parameters: 1000000, forward: 10 ms, backward: 20 ms}]
cluster: {ranks: 8}
collective: {backend: ideal_ring, bandwidth: 10 GB/s}
strategy: {kind: ddp, torch: "2.13"}
optimizer: {kind: none}
"""
COMPUTE, BYTES = 0.030, 4e6
#: strong scaling: 1,024 samples of 15 ms and 0.5 s that nobody shares out
SERIAL = """
model:
  layers: [{name: body, parameters: 1000000, forward: 5 ms, backward: 10 ms}]
cluster: {ranks: 1}
collective: {backend: free}
strategy: {kind: ddp}
optimizer: {kind: none}
batch: {global: 1024}
host: {serial: 0.5 s}
training: {samples: 1024000}
price: {per_device_hour: 3.60 usd/h}
"""
STEPS = 1000
#: a real machine, whose numbers have intervals
RACK = """
model: {name: vgg16}
cluster: {machine: rack-10gbe, ranks: 8}
strategy: {kind: ddp, torch: "2.13"}
precision: {parameters: fp32, compute: fp32}
optimizer: {kind: momentum}
batch: {per_device: 32}
"""


def scenario(text: str, **changes: Any) -> Loaded:
    data, _ = yamlfile.loads(text, "test")
    return load({**data, **changes}, Path(), "test")


def value_at(loaded: Loaded, change: dict[str, Any], field: str) -> float:
    """What `dpsim run` predicts for `field` with `change`."""
    point = predict(bench_of(loaded).loaded(change)).points[0]
    return float(point[field])


def asked(loaded: Loaded, vary: str, *wanted: str) -> Finding:
    bench = bench_of(loaded)
    knob, given_ = searched(bench, vary)
    return require(bench, knob, [parse_wanted(text) for text in wanted], given_)


def found_in(answer: Finding) -> dict[str, Any]:
    assert answer.answer is not None
    return answer.answer


# -- which value does it take ---------------------------------------------------------------------


@pytest.mark.parametrize("efficiency", [0.5, 0.9, 0.99])
def test_the_bandwidth_of_a_ring_is_the_closed_form(efficiency: float) -> None:
    """Efficiency C / (C + 2(N-1)/N S/B) solved for B."""
    answer = asked(scenario(RING), "collective.bandwidth", f"efficiency>={efficiency}")
    exact = 2 * 7 / 8 * BYTES / (COMPUTE * (1 / efficiency - 1))
    found = found_in(answer)["at_least"]
    assert exact <= found["value"] <= exact * 1.003
    assert found_in(answer)["at_most"] is None
    assert found_in(answer)["monotone"]


def test_what_is_found_holds_and_one_percent_less_does_not() -> None:
    """Simulated as `dpsim run` does, apart from the search."""
    loaded = scenario(RING)
    found = found_in(asked(loaded, "collective.bandwidth", "step_time_s<=31ms"))["at_least"]
    at = {"collective.bandwidth": found["text"]}
    less = {"collective.bandwidth": f"{found['value'] * 0.99!r} B/s"}
    assert value_at(loaded, at, "step_time_s") <= 0.031 < value_at(loaded, less, "step_time_s")


def test_a_latency_may_be_at_most_the_closed_form() -> None:
    exact = (0.040 - COMPUTE - 14 / 8 * BYTES / 10e9) / 14
    found = found_in(asked(scenario(RING), "collective.latency=1:10000 us", "step_time_s<=40ms"))
    assert found["at_least"] is None
    assert exact * 0.997 <= found["at_most"]["value"] <= exact


def test_ranks_for_a_speedup_are_those_of_amdahls_law_in_whole_samples() -> None:
    def speedup(n: int) -> float:
        return (0.5 + 1024 * 0.015) / (0.5 + math.ceil(1024 / n) * 0.015)

    exact = next(n for n in range(1, 1025) if speedup(n) >= 12)
    found = found_in(asked(scenario(SERIAL), "cluster.ranks", "speedup>=12"))
    assert found["at_least"]["value"] == exact
    assert found["at_least"]["point"]["speedup"] == pytest.approx(speedup(exact), rel=1e-12)


def test_a_stretch_with_two_ends_is_found_and_called_not_monotone() -> None:
    """Strong scaling over a ring with latency: too few ranks are slow, and so are too many."""
    loaded = scenario(
        RING,
        batch={"global": 64},
        collective={"backend": "ideal_ring", "latency": "2 ms", "bandwidth": "1 TB/s"},
    )

    def step(n: int) -> float:
        return 0.030 * math.ceil(64 / n) + 2 * (n - 1) * (0.002 + BYTES / n / 1e12)

    good = [n for n in range(1, 65) if step(n) <= 0.25]
    answer = asked(loaded, "cluster.ranks=1:64", "step_time_s<=250ms")
    found = found_in(answer)
    assert (found["at_least"]["value"], found["at_most"]["value"]) == (good[0], good[-1])
    assert not found["monotone"]
    assert any("not monotone" in note for note in answer.notes)


def test_listed_values_are_chosen_among_and_not_between() -> None:
    answer = asked(scenario(RING), "collective.bandwidth=4 GB/s,1 GB/s,2 GB/s", "efficiency>=0.9")
    assert found_in(answer)["at_least"]["text"] == "4 GB/s"
    assert [point["set"]["collective.bandwidth"] for point in answer.points] == [
        "1 GB/s", "2 GB/s", "4 GB/s",
    ]  # fmt: skip


def test_what_holds_everywhere_has_no_end() -> None:
    found = found_in(asked(scenario(RING), "collective.bandwidth", "step_time_s<=1h"))
    assert found["at_least"] is None
    assert found["at_most"] is None
    assert found["now"]["holds"]


def test_what_cannot_be_reached_is_missed_by_so_much_and_something_binds() -> None:
    """No bandwidth makes a step shorter than its compute."""
    answer = asked(scenario(RING), "collective.bandwidth", "step_time_s<=25ms")
    assert not answer.found
    assert answer.infeasible is not None
    (miss,) = answer.infeasible["misses"]
    assert miss["value"] == pytest.approx(COMPUTE, rel=1e-3)
    assert miss["by"] == pytest.approx(COMPUTE / 0.025 - 1, rel=1e-2)
    assert answer.infeasible["binds"] == "compute"


@pytest.mark.parametrize(("batches", "said"), [("8,64", False), ("8,1024", True)])
def test_a_value_that_does_not_fit_says_so_in_its_line(batches: str, said: bool) -> None:
    loaded = scenario(RACK)
    found = asked(loaded, f"batch.per_device={batches}", "throughput_per_s>=300")
    told = answer_text(document(loaded, bench_of(loaded), found))
    assert told[0].startswith(f"batch.per_device must be at least {batches[2:]}")
    assert ("does not fit in memory" in told[0]) == said


def test_several_requirements_hold_together() -> None:
    one = found_in(asked(scenario(RING), "collective.bandwidth", "efficiency>=0.9"))
    both = found_in(
        asked(scenario(RING), "collective.bandwidth", "efficiency>=0.9", "step_time_s<=31ms")
    )
    assert both["at_least"]["value"] > one["at_least"]["value"]
    assert both["at_least"]["point"]["step_time_s"] <= 0.031


def test_at_90_percent_the_worse_end_of_the_interval_holds() -> None:
    loaded = scenario(RACK)
    answer = asked(loaded, "cluster.inter_node_bandwidth=1:100 Gbit/s", "step_time_s<=2s")
    found, sure = found_in(answer)["at_least"], found_in(answer)["sure"]["at_least"]
    assert sure["value"] > found["value"]
    assert sure["point"]["step_time_high_s"] <= 2.0 < found["point"]["step_time_high_s"]
    less = {"cluster.inter_node_bandwidth": f"{sure['value'] * 0.99!r} B/s"}
    assert value_at(loaded, less, "step_time_high_s") > 2.0


def test_where_more_bandwidth_gains_nothing_is_named_once_with_what_holds_it() -> None:
    def said(given: str) -> list[str]:
        bench = bench_of(scenario(RACK))
        knob, reach = searched(bench, f"cluster.inter_node_bandwidth={given}")
        wanted = [parse_wanted("step_time_s<=2s")]
        found = require(bench, knob, wanted, reach)
        return list(document(scenario(RACK), bench, found)["warnings"])

    texts = said("1:2000 Gbit/s")
    flat = [text for text in texts if "on, of the values tried, a step stays at" in text]
    assert len(flat) == 1
    more = "collective: {backend: nccl, sockets: 8}"
    assert f"a TCP connection carries no more; with {more}" in flat[0]
    assert len([text for text in texts if "its PCIe carries no more" in text]) == 1
    assert not any("stays at" in text for text in said("1:20 Gbit/s"))


@pytest.mark.parametrize(
    ("key", "start", "to", "why"),
    [
        ("nics_per_node", "1", "8", "up to 8, twice the GPUs of a node"),
        ("inter_node_latency", "0.1 us", "100000 us", "from 0.1 us to 100000 us: a switch alone"),
    ],
)
def test_no_network_is_searched_that_nobody_builds(key: str, start: str, to: str, why: str) -> None:
    """They were 1,024 NICs of a node, and 0.001 us to 1,000 s."""
    found = planned_rate("step_time_s<=1ms", f"cluster.{key}")
    assert (found["question"]["from"], found["question"]["to"]) == (start, to)
    (said,) = (text for text in found["warnings"] if "searched" in text)
    assert why in said
    assert f"--vary cluster.{key}=LOW:HIGH searches further" in said
    given = planned_rate("step_time_s<=1ms", f"cluster.{key}={start}:{to}")
    assert not any("searched" in text for text in given["warnings"])


def test_a_latency_beyond_the_limits_of_a_search_is_among_them() -> None:
    loaded = scenario(RACK)
    for now in ("10 ns", "20 us", "0.5 s"):
        cluster = dataclasses.replace(loaded.scenario.cluster, inter_node_latency=parse(now, "s"))
        changed = dataclasses.replace(loaded.scenario, cluster=cluster)
        knob = knob_of(changed, "cluster.inter_node_latency", "--vary")
        low, high = knob.span()
        assert low == min(1e-7, parse(now, "s"))
        assert high == max(0.1, parse(now, "s"))


def test_the_nearest_is_no_faster_network_than_one_as_good() -> None:
    """Where sockets hold the step, 80 Gbit/s are as near as 253, which are 0.006 % better."""
    bench = bench_of(read("vgg16-10gbe"))
    knob, reach = searched(bench, BANDWIDTH)
    found = require(bench, knob, [parse_wanted("efficiency>=0.871")], reach)
    told = document(read("vgg16-10gbe"), bench, found)
    assert told["infeasible"]["nearest"]["set"] == {BANDWIDTH: "80 Gbit/s"}


def test_a_nic_sends_what_the_gpu_beside_it_does() -> None:
    """Of a V100 server with one NIC: 96 Gbit/s of PCIe, and 80 only from the other socket."""

    def said(rate: int) -> list[str]:
        changes = [f"cluster.inter_node_bandwidth={rate} Gbit/s"]
        found = predict(read("quickstart", changes)).document
        return [text for text in found["warnings"] if "sends at most" in text]

    def step(rate: int) -> float:
        changes = [f"{BANDWIDTH}={rate} Gbit/s"]
        return float(predict(read("quickstart", changes)).points[-1]["step_time_s"])

    assert not said(90)
    (text,) = said(100)
    assert "sends at most 96 Gbit/s" in text
    assert step(90) < 0.999 * step(80)
    assert step(253) == pytest.approx(step(97), rel=1e-6)


def planned_rate(required: str, vary: str = "cluster.inter_node_bandwidth", **more: Any) -> Any:
    """The document on a rack's rate between nodes."""
    return dpsim.plan(scenario(RACK, **more), require=required, vary=vary).document


def test_no_network_is_searched_that_is_faster_than_the_machines_there_are() -> None:
    """800 Gbit/s is what a NIC of a DGX B300 has; it said `no value up to 80000 Gbit/s`."""
    found = planned_rate("step_time_s<=1ms")
    assert not found["found"]
    assert found["question"]["to"] == "800 Gbit/s"
    (said,) = (text for text in found["warnings"] if "searched up to" in text)
    assert "no NIC of the machines that come with dpsim is faster" in said
    assert "--vary cluster.inter_node_bandwidth=LOW:HIGH searches further" in said


def test_a_faster_network_of_ones_own_and_a_range_that_is_given_are_searched() -> None:
    own = planned_rate("step_time_s<=1ms", cluster=_cluster(8, "1.6 Tbit/s")["cluster"])
    assert own["question"]["to"] == "1600 Gbit/s"
    given = planned_rate("step_time_s<=1ms", "cluster.inter_node_bandwidth=1:2000 Gbit/s")
    assert given["question"]["to"] == "2000 Gbit/s"
    assert not any("searched up to" in text for text in given["warnings"])


def test_where_a_rate_is_enough_nothing_is_said_of_faster_ones() -> None:
    found = planned_rate("step_time_s<=20s")
    assert found["answer"]["sure"] is not None
    assert not any("searched up to" in text for text in found["warnings"])


def test_compute_that_takes_longer_than_it_has_to_is_told_where_nothing_will_do() -> None:
    """On 32 GPUs it is compute that binds, and a third of it is not the layers' own."""
    found = dpsim.plan(
        read("vgg16-10gbe"), require="efficiency>=0.995", vary="cluster.inter_node_bandwidth"
    ).document
    (told,) = (text for text in answer_text(found) if "No schedule" in text)
    assert "is faster than 302.7 ms: dpsim explain" in told
    plain = dpsim.plan(
        scenario(RING), require="step_time_s<=1ms", vary="collective.bandwidth"
    ).document
    assert not any("No schedule" in text for text in answer_text(plain))


def test_a_run_that_takes_no_time_has_no_interval_of_device_hours() -> None:
    point = {"device_hours": 0.0, "time_to_train_s": 0.0}
    point |= {"time_to_train_low_s": 0.0, "time_to_train_high_s": 0.0}
    assert ends_of(point, "device_hours") is None
    assert parse_wanted("device_hours<=3").margin(point, sure=True) == 1.0


def test_efficiency_is_relative_to_the_first_point_of_the_sweep_as_in_a_run() -> None:
    loaded = scenario(RACK, sweep={"cluster.ranks": [4, 8, 16]})
    bench = bench_of(loaded)
    point = bench.point({}, relative=True)
    last = predict(loaded).points[-1]
    assert point["ranks"] == 16
    for key in ("efficiency", "efficiency_low", "efficiency_high", "speedup"):
        assert point[key] == pytest.approx(last[key], rel=1e-9)


def test_efficiency_is_relative_to_what_is_asked() -> None:
    bench = bench_of(scenario(RING), "cluster.ranks=4")
    point = bench.point({}, relative=True)
    four, eight = (COMPUTE + 2 * (n - 1) / n * BYTES / 10e9 for n in (4, 8))
    assert point["efficiency"] == pytest.approx(four / eight, rel=1e-12)


def test_what_is_between_nodes_changes_nothing_on_one() -> None:
    """So the point on one node that others are compared with is played once for all of them."""
    loaded = scenario(RACK, sweep={"cluster.ranks": [4, 8]})
    bench = bench_of(loaded)
    for speed in ("1 Gbit/s", "100 Gbit/s"):
        change = {"cluster.inter_node_bandwidth": speed}
        four, eight = predict(scenario(RACK, **_cluster(4, speed))), bench.point(change)
        assert four.points[0]["step_time_s"] == value_at(
            loaded, {"cluster.ranks": 4}, "step_time_s"
        )
        share = bench.point(change, relative=True)["efficiency"]
        assert share == pytest.approx(four.step_time_s / eight["step_time_s"], rel=1e-9)
    assert bench.played == 3


def _cluster(ranks: int, speed: str) -> dict[str, Any]:
    return {"cluster": {"machine": "rack-10gbe", "ranks": ranks, "inter_node_bandwidth": speed}}


def test_a_point_is_played_once() -> None:
    bench = bench_of(scenario(RING))
    for _ in range(3):
        bench.point({"collective.bandwidth": "2 GB/s"})
    assert bench.played == 1


def test_searching_and_confirming_play_the_same_numbers() -> None:
    """The vectorised engine while searching, the scenario's own for the answer."""
    bench = bench_of(scenario(RACK, variability={"jitter": "5 %", "steps": 20}))
    quick, confirmed = bench.point({}), bench.point({}, confirmed=True)
    assert (quick["engine"], confirmed["engine"]) == ("vectorised", "event")
    assert quick["step_time_s"] == pytest.approx(confirmed["step_time_s"], rel=1e-9)


# -- how large can it be --------------------------------------------------------------------------


def test_the_largest_batch_is_that_of_the_free_memory() -> None:
    """Where backward is the fullest moment, memory is a straight line over the batch."""
    loaded = scenario(RACK)
    one, two = (value_at(loaded, {"batch.per_device": n}, "memory_bytes") for n in (100, 101))
    none = one - 100 * (two - one)
    bench = bench_of(loaded)
    capacity = bench.memory({}).capacity
    assert capacity is not None
    exact = math.floor((capacity - none) / (two - one))
    found = found_in(largest(bench, knob_of(bench.scenario(), "batch.per_device", "--largest")))
    assert found["value"] == exact
    assert found["limited_by"] == "memory"
    assert found["following"]["short_by"] == pytest.approx(
        none + (exact + 1) * (two - one) - capacity, rel=1e-6
    )
    assert sum(found["memory"]["parts"].values()) == found["memory"]["bytes"]


def test_what_raises_the_largest_batch_fits_when_it_is_set() -> None:
    bench = bench_of(scenario(RACK))
    found = found_in(largest(bench, knob_of(bench.scenario(), "batch.per_device", "--largest")))
    assert found["raised_by"]
    for entry in found["raised_by"]:
        assert entry["value"] > found["value"]
        more = {**entry["set"], "batch.per_device": entry["value"]}
        assert bench.memory(more).fits
        assert not bench.memory({**more, "batch.per_device": entry["value"] + 1}).fits


def test_a_requirement_can_be_what_limits() -> None:
    loaded = scenario(RACK)
    bench = bench_of(loaded)
    knob = knob_of(bench.scenario(), "batch.per_device", "--largest")
    found = found_in(largest(bench, knob, [parse_wanted("step_time_s<=1.5s")]))
    assert found["limited_by"] == "step_time_s <= 1.5 s"
    at, more = ({"batch.per_device": found["value"] + k} for k in (0, 1))
    assert value_at(loaded, at, "step_time_s") <= 1.5 < value_at(loaded, more, "step_time_s")


def test_a_model_that_never_fits_says_how_much_is_missing() -> None:
    model = {"huggingface": "llama-3-8b.json", "sequence_length": 1024}
    bench = bench_of(scenario(RACK, model=model, precision={"compute": "fp32"}))
    answer = largest(bench, knob_of(bench.scenario(), "batch.per_device", "--largest"))
    assert not answer.found
    assert answer.infeasible is not None
    used = bench.memory({"batch.per_device": 1})
    assert answer.infeasible["misses"][0]["by"] == pytest.approx(
        used.bytes / (used.capacity or 0) - 1
    )


def test_what_is_not_sure_to_fit_is_said_so() -> None:
    """The largest batch is that of the point, so the high end does not fit; with one sample more
    the low end does."""
    loaded = read("quickstart")
    bench = bench_of(loaded)
    found = largest(bench, knob_of(bench.scenario(), "batch.per_device", "--largest"))
    most = found_in(found)["value"]
    told = answer_text(document(loaded, bench, found))
    assert told[0].startswith(f"batch.per_device can likely be {most:,}, limited by memory")
    beyond = predict(
        read("quickstart", ["sweep={cluster.ranks: [8]}", f"batch.per_device={most + 1}"])
    )
    assert beyond.points[0].memory.fits == "unlikely"
    assert headline(beyond).endswith("It is unlikely to fit in memory.")
    assert any(text.startswith("8 ranks: is unlikely to fit, ") for text in beyond.warnings)


def test_the_largest_micro_batch_of_a_global_batch_divides_it() -> None:
    """Three samples for each of four ranks: one and three are accepted, two and four are not."""
    data = {
        "model": {"huggingface": "gpt2", "sequence_length": 1024},
        "cluster": {"machine": "v100-1x100g", "ranks": 4},
        "strategy": {"kind": "ddp"},
        "batch": {"global": 12},
    }
    for rest in ({"per_device": 1}, {"accumulation": 3}, {}):
        bench = bench_of(load(data | {"batch": {"global": 12, **rest}}, Path(), "given"))
        knob = knob_of(bench.scenario(), "batch.per_device", "--largest")
        found = found_in(largest(bench, knob))
        assert (found.value, found.limited_by) == (3, "its largest accepted value, 3")
        slow = bench.point({"batch.per_device": 3}).step_time_s
        wanted = [parse_wanted(f"step_time_s>={slow * 1.001!r}s")]
        assert found_in(largest(bench, knob, wanted)).value == 1


def test_a_micro_batch_that_leaves_no_gradients_waiting_may_be_the_largest_that_fits() -> None:
    """One micro-batch leaves no unsharded gradients: 8 needs less than 1, and none fits."""
    bench = bench_of(load(of_70_b(recompute="full"), Path(), "given"))
    missed = largest(bench, knob_of(bench.scenario(), "batch.per_device", "--largest")).infeasible
    assert missed is not None
    assert missed.at == {"batch.per_device": 8}
    assert missed.memory.bytes < bench.memory({"batch.per_device": 1}).bytes
    raised = {str(one.set): one.value for one in missed.raised_by}
    assert raised["{'strategy.no_sync': False}"] == 2


def test_the_largest_global_batch_begins_with_a_sample_per_rank() -> None:
    bench = bench_of(scenario(RACK, batch={"global": 64}))
    whole = found_in(largest(bench, knob_of(bench.scenario(), "batch.global", "--largest")))
    bench = bench_of(scenario(RACK))
    each = found_in(largest(bench, knob_of(bench.scenario(), "batch.per_device", "--largest")))
    assert whole["value"] == 8 * each["value"]


def test_what_takes_no_memory_has_no_largest() -> None:
    bench = bench_of(scenario(RACK))
    for key in ("iteration", "cluster.ranks", "seed"):
        with pytest.raises(Refused, match="memory does not grow"):
            largest(bench, knob_of(bench.scenario(), key, "--largest"))


def test_without_a_machine_there_is_no_largest() -> None:
    bench = bench_of(scenario(RING))
    with pytest.raises(Refused, match="how much memory"):
        largest(bench, knob_of(bench.scenario(), "batch.per_device", "--largest"))


# -- the best that meets all constraints ----------------------------------------------------------


def time_to_train(n: int) -> float:
    return STEPS * (0.5 + math.ceil(1024 / n) * 0.015)


def cost(n: int) -> float:
    return n * time_to_train(n) / 3600 * 3.60


def chosen(objective: str, *wanted: str, vary: tuple[str, ...] = ()) -> Finding:
    return choose(
        bench_of(scenario(SERIAL)), vary, [parse_wanted(text) for text in wanted], objective
    )


def test_a_deadline_takes_the_cheapest_that_is_fast_enough() -> None:
    """More ranks cost more, for what is serial is paid for by all: the smallest will do."""
    answer = chosen("cost_usd", "time_to_train_s<=30min")
    ranks = next(2**k for k in range(11) if time_to_train(2**k) <= 1800)
    found = found_in(answer)
    assert found["set"] == {"cluster.ranks": ranks}
    assert found["value"] == pytest.approx(cost(ranks), rel=1e-9)
    assert [point["ranks"] for point in answer.points] == [2**k for k in range(11)]


def test_a_budget_takes_the_fastest_that_is_cheap_enough() -> None:
    answer = chosen("time_to_train_s", "cost_usd<=40usd")
    ranks = max(2**k for k in range(11) if cost(2**k) <= 40)
    assert found_in(answer)["set"] == {"cluster.ranks": ranks}


@pytest.mark.parametrize(
    ("objective", "other"),
    [("cost_usd", "cost_usd"), ("step_time_s", "step_time_s"), ("time_to_train_s", "cost_usd")],
)
def test_the_front_is_of_time_and_what_is_minimised(objective: str, other: str) -> None:
    question = chosen(objective, vary=("cluster.ranks=1,2,4",)).question
    assert question["front"] == ["time_to_train_s", other]


def test_the_front_has_all_points_that_none_beats() -> None:
    answer = chosen("cost_usd")
    front = [point["ranks"] for point in answer.points if point["on_front"]]
    times = {2**k: (time_to_train(2**k), cost(2**k)) for k in range(11)}
    beaten = {
        n
        for n, (t, c) in times.items()
        for other, (s, d) in times.items()
        if other != n and s <= t and d <= c
    }
    assert front == [n for n in times if n not in beaten]


def test_an_infeasible_budget_says_by_how_much() -> None:
    answer = chosen("time_to_train_s", "cost_usd<=10usd")
    assert not answer.found
    assert answer.infeasible is not None
    (alone,) = answer.infeasible["alone"]
    assert alone["set"] == {"cluster.ranks": 1}
    assert alone["by"] == pytest.approx(cost(1) / 10 - 1, rel=1e-9)


def test_constraints_that_each_can_be_met_and_not_together_are_told_so() -> None:
    deadline, budget = time_to_train(64), cost(8)
    answer = chosen("cost_usd", f"time_to_train_s<={deadline!r}s", f"cost_usd<={budget:.6f}usd")
    assert not answer.found
    assert answer.infeasible is not None
    assert answer.infeasible["alone"] == []
    text = " ".join(answer_text(document(scenario(SERIAL), bench_of(scenario(SERIAL)), answer)))
    assert "not all together" in text


def test_other_keys_are_searched_beside_the_size() -> None:
    answer = chosen(
        "time_to_train_s", "cost_usd<=1000usd", vary=("host.serial=0.5 s,0.1 s", "cluster.ranks=4")
    )
    assert found_in(answer)["set"] == {"host.serial": "0.1 s", "cluster.ranks": 4}
    assert len(answer.points) == 2


# -- knobs ----------------------------------------------------------------------------------------

LAYERS = """
model:
  dtype: fp32
  layers:
    - {name: a, parameters: 4000000, forward: 1 ms, backward: 2 ms}
    - {name: b, parameters: 4000000, forward: 1 ms, backward: 2 ms}
    - {name: c, parameters: 4000000, forward: 1 ms, backward: 2 ms}
cluster: {ranks: 4}
collective: {backend: ideal, latency: 300 us, bandwidth: 10 GB/s}
strategy: {kind: ddp, torch: "2.13", bucket_cap_mb: 400}
optimizer: {kind: none}
"""


def tuned(loaded: Loaded, keys: str, *vary: str) -> Finding:
    bench = bench_of(loaded)
    return tune(bench, tune_axes(bench, keys.split(","), vary))


def test_the_best_setting_is_the_best_of_all_runs() -> None:
    loaded = scenario(LAYERS)
    caps = (1, 2, 5, 10, 25, 50, 100, 200, 400)
    runs = {cap: value_at(loaded, {"strategy.bucket_cap_mb": cap}, "step_time_s") for cap in caps}
    answer = found_in(tuned(loaded, "strategy.bucket_cap_mb"))
    best = min(runs.values())
    assert answer["point"]["step_time_s"] == pytest.approx(best, rel=1e-9)
    assert answer["gain"] == pytest.approx(runs[400] / best - 1, rel=1e-9)
    assert answer["gain"] > 0.1
    assert len(answer["ranking"]) == len(caps) + 1


def test_nothing_better_than_now_is_said() -> None:
    answer = tuned(scenario(LAYERS), "strategy.bucket_cap_mb", "strategy.bucket_cap_mb=300,400")
    assert found_in(answer)["gain"] == 0
    assert any("nothing that was tried is better" in note for note in answer.notes)


def test_a_gain_smaller_than_the_uncertainty_is_said() -> None:
    strategy = {"kind": "ddp", "torch": "2.13", "bucket_cap_mb": 1}
    answer = tuned(scenario(RACK, strategy=strategy), "strategy.bucket_cap_mb")
    found = found_in(answer)
    assert 0 < found["gain"] < found["unsure_by"]
    assert found["gain_low"] <= found["gain"] <= found["gain_high"]
    assert any("than what either step time is unsure by" in n or "can tell" in n
               for n in answer.notes)  # fmt: skip


def test_a_gain_by_a_larger_batch_is_told_apart() -> None:
    answer = tuned(scenario(LAYERS), "batch.accumulation,strategy.bucket_cap_mb")
    found = found_in(answer)
    assert found["set"]["batch.accumulation"] == 32
    assert found["same_batch"]["set"]["batch.accumulation"] == 1
    assert found["same_batch"]["gain"] < found["gain"]
    assert any("global batch changes" in note for note in answer.notes)


def test_a_compression_that_changes_what_is_learnt_is_not_simply_the_best() -> None:
    """Random-k sends least; of those that learn alike 1-bit Adam does."""
    layer = {"name": "a", "parameters": 40_000_000, "forward": "1 ms", "backward": "2 ms"}
    model = {"dtype": "fp32", "layers": [layer]}
    answer = tuned(
        scenario(LAYERS, model=model), "compression", "compression=none,fp16,random_k,one_bit"
    )
    found = found_in(answer)
    assert found["set"] == {"compression": "random_k"}
    assert found["same_learning"]["set"] == {"compression": "one_bit"}
    assert 0 < found["same_learning"]["gain"] < found["gain"]
    assert any("random_k changes what is learnt" in note for note in answer.notes)
    alike = tuned(scenario(LAYERS, model=model), "compression", "compression=none,fp16")
    assert found_in(alike)["same_learning"] is None
    assert not any("learnt" in note for note in alike.notes)


def test_a_compression_that_is_part_of_adam_learns_alike_with_adam_only() -> None:
    layer = {"name": "a", "parameters": 40_000_000, "forward": "1 ms", "backward": "2 ms"}
    model = {"dtype": "fp32", "layers": [layer]}
    for kind in ("one_bit", "zero_one_adam"):
        for optimizer, others in (("adam", None), ("momentum", {"compression": "fp16"})):
            loaded = scenario(LAYERS, model=model, optimizer={"kind": optimizer})
            found = found_in(tuned(loaded, "compression", f"compression=none,fp16,{kind}"))
            assert found["set"] == {"compression": kind}
            assert (found["same_learning"] or {"set": None})["set"] == others


def tuned_document(loaded: Loaded, vary: str) -> dict[str, Any]:
    return document(loaded, bench_of(loaded), tuned(loaded, "strategy.bucket_cap_mb", vary))


def test_a_ranking_that_is_cut_says_how_many_it_leaves_out() -> None:
    """Of 13 caps and the scenario as it is ten are shown, and what is now."""
    caps = ",".join(str(cap) for cap in range(1, 14))
    cut = tuned_document(scenario(LAYERS), f"strategy.bucket_cap_mb={caps}")
    assert len(columns_of(cut)[1]) == 11
    assert left_out(cut) == ["And 3 more, which plan.csv and --json have."]
    assert left_out(tuned_document(scenario(LAYERS), "strategy.bucket_cap_mb=1,2")) == []


def test_a_gain_in_time_is_said_to_be_one_in_speed() -> None:
    loaded = scenario(LAYERS, training={"samples": 1000, "largest_batch": 1000})
    told = tuned_document(loaded, "strategy.bucket_cap_mb=1")
    assert "in speed over now." in answer_text(told)[0]


def test_a_tuned_key_is_given_once() -> None:
    given_twice = ["strategy.bucket_cap_mb=1,2", "strategy.bucket_cap_mb=4"]
    with pytest.raises(Refused, match=r"^--vary strategy\.bucket_cap_mb: is given twice"):
        tuned(scenario(LAYERS), "strategy.bucket_cap_mb", *given_twice)


def test_a_field_without_its_unit_is_said_to_be_another() -> None:
    with pytest.raises(Refused, match="did you mean 'time_to_train_s'"):
        parse_wanted("time_to_train<=60 h")


def test_every_compression_is_tried_that_the_strategy_takes() -> None:
    """Horovod has fp16 alone."""
    loaded = scenario(LAYERS, strategy={"kind": "horovod"})
    (axis,) = tune_axes(bench_of(loaded), ["compression"], [])
    assert [change["compression"] for change in axis.changes] == ["none", "fp16"]


def test_switches_are_tuned_over_their_ways() -> None:
    answer = tuned(scenario(LAYERS), "strategy.find_unused_parameters,strategy.comm_hook")
    tried = {tuple(point["set"].values()) for point in answer.points if point["set"]}
    assert tried == {(a, b) for a in (False, True) for b in ("none", "fp16", "bf16")}


def test_a_knob_without_a_value_needs_values() -> None:
    with pytest.raises(Refused, match=r"--vary cluster\.oversubscription="):
        tuned(scenario(RACK), "cluster.oversubscription")


# -- searching ------------------------------------------------------------------------------------


@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e6), st.floats(1.01, 1e6), st.sampled_from((0, 1, 2)))
@settings(deadline=None)
def test_an_edge_is_between_its_ends_and_they_are_close(
    at: float, below: float, above: float, kind: int
) -> None:
    def margin(x: float) -> float:
        return {0: 1 - at / x, 1: 1.0 if x >= at else -1.0, 2: math.log(x / at)}[kind]

    bad, good = edge(margin, at / below, at * above)
    assert not holds(margin(bad))
    assert holds(margin(good))
    assert good / bad <= 1.001 * (1 + 1e-9)


@given(st.integers(2, 5000), st.integers(1, 7))
@settings(deadline=None)
def test_an_edge_among_whole_numbers_is_exact(at: int, step: int) -> None:
    bad, good = edge(lambda x: x - at * step, float(step), 5001.0 * step, step=float(step))
    assert (bad, good) == ((at - 1) * step, at * step)


@given(st.integers(0, 10_000), st.integers(1, 10_000))
def test_the_largest_whole_number_is_found(limit: int, last: int) -> None:
    found = largest_whole(lambda n: n <= limit, 1, last)
    assert found == (min(limit, last) if limit else None)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_a_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    front = {points[k] for k in pareto(points)}
    beaten = {p for p in points for q in points if q != p and q[0] <= p[0] and q[1] <= p[1]}
    assert front == set(points) - beaten


def test_the_stretch_that_is_looked_at() -> None:
    yes, no = 1.0, -1.0
    assert run_of([no, no]) is None
    for margins, expected in (
        ([no, yes, yes], (1, 2, True)),
        ([yes, no, no], (0, 0, True)),
        ([yes, no, yes], (2, 2, False)),
        ([yes, no, yes, no], (0, 0, False)),
        ([no, yes, no, yes, yes, no], (3, 4, False)),
        ([no, -math.inf, yes], (2, 2, True)),
    ):
        run = run_of(margins)
        assert run is not None
        assert (run.first, run.last, run.monotone) == expected


@given(st.floats(0.0, 1e9), st.floats(0.0, 1e9), st.integers(2, 12))
def test_a_scan_rises_from_one_end_to_the_other(low: float, more: float, count: int) -> None:
    values = spaced(low, low + more, count)
    assert values[0] == low
    assert values == sorted(set(values))
    assert values[-1] == max(low + more, low)
    assert len(values) <= count


# -- what may be varied and required --------------------------------------------------------------


@given(st.floats(1e-3, 1e5))
def test_a_value_that_is_said_is_near_and_on_the_right_side(gigabits: float) -> None:
    knob = knob_of(scenario(RACK).scenario, "cluster.inter_node_bandwidth", "--vary")
    value = gigabits * 1e9 / 8
    up, down = (knob.value(knob.rounded(value, way)) for way in (True, False))
    assert down * (1 - 1e-12) <= value <= up * (1 + 1e-12)
    assert up / down <= 1.00101
    assert knob.value(knob.text(value, 12)) == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("cluster.inter_node_bandwith", "did you mean 'inter_node_bandwidth'"),
        ("strategy.find_unused_parameters", "is no number; it is one of False, True"),
        ("strategy.kind", "is no number"),
        ("model.name", "is no number"),
        ("collective.latency", "has no collective"),
        ("strategy.bucket_cap_mb_list", "is no number"),
    ],
)
def test_what_is_no_number_is_refused_by_name(key: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        knob_of(scenario(RACK).scenario, key, "--vary")


def test_numbers_of_every_kind_are_known() -> None:
    loaded = scenario(SERIAL, variability={"jitter": "3 %"}).scenario
    for key, dimension, whole, now in (
        ("batch.global", "1", True, 1024.0),
        ("host.serial", "s", False, 0.5),
        ("price.per_device_hour", "usd/h", False, 3.6),
        ("model.layers[0].forward", "s", False, 0.005),
        ("variability.jitter", "1", False, 0.03),
        ("strategy.bucket_cap_mb", "1", False, None),
    ):
        knob = knob_of(loaded, key, "--vary")
        assert (knob.dimension, knob.whole, knob.now) == (dimension, whole, now)
    assert sensible(knob)[0] == 1


def test_a_price_is_searched_in_money() -> None:
    found = found_in(
        asked(scenario(SERIAL), "price.per_device_hour=1:100 usd/h", "cost_usd<=30usd")
    )
    exact = 30 / (time_to_train(1) / 3600)
    assert exact * 0.997 <= found["at_most"]["value"] <= exact


@pytest.mark.parametrize(
    ("text", "field", "least", "limit"),
    [
        ("efficiency>=90%", "efficiency", True, 0.9),
        ("step_time_s <= 300ms", "step_time_s", False, 0.3),
        ("time_to_train_s<=30d", "time_to_train_s", False, 2_592_000.0),
        ("throughput_per_s>=20,000 images/s", "throughput_per_s", True, 20_000.0),
        ("memory_bytes<=80GB", "memory_bytes", False, 80e9),
        ("memory_parts.gradients<=1GiB", "memory_parts.gradients", False, 2.0**30),
        ("cost_usd<=200_000usd", "cost_usd", False, 200_000.0),
        ("cost_usd<=4Musd", "cost_usd", False, 4e6),
        ("cost_usd<=1.242 M usd", "cost_usd", False, 1_242_000.0),
        ("cost_usd<=250k usd", "cost_usd", False, 250_000.0),
        ("cost_usd<=2e6 usd", "cost_usd", False, 2e6),
        ("energy_kwh<=2MWh", "energy_kwh", False, 2000.0),
        ("steps<=1e5", "steps", False, 1e5),
    ],
)
def test_requirements_carry_units(text: str, field: str, least: bool, limit: float) -> None:
    assert parse_wanted(text) == Wanted(field, least, limit)


@pytest.mark.parametrize(
    "text",
    ["efficiency>0.9", "efficiency=0.9", "step_time_s<=300", "step_time_s<=3GB", "cost_usd<=3",
     "", "mfu>=", "steps<=3 ms", "energy_kwh<=3", "efficiency>=many",
     "efficiency>=90"],
)  # fmt: skip
def test_requirements_without_a_sense_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="--require"):
        parse_wanted(text)


def test_the_ends_of_throughput_are_those_of_the_step_time() -> None:
    point = {"throughput_per_s": 100.0, "step_time_s": 2.0, "step_time_low_s": 1.0,
             "step_time_high_s": 4.0}  # fmt: skip
    assert ends_of(point, "throughput_per_s") == (50.0, 200.0)
    assert ends_of(point, "memory_bytes") is None


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def ring(tmp_path: Path) -> str:
    path = tmp_path / "ring.yaml"
    path.write_text(RING, encoding="utf-8")
    return str(path)


@pytest.fixture
def serial(tmp_path: Path) -> str:
    path = tmp_path / "serial.yaml"
    path.write_text(SERIAL, encoding="utf-8")
    return str(path)


NEED = ("--require", "efficiency>=0.9", "--vary", "collective.bandwidth")


def test_json_is_the_file_and_nothing_else_is_printed(cli: Cli, ring: str, tmp_path: Path) -> None:
    code, out, err = cli("plan", ring, *NEED, "--json", "-o", "plan")
    assert (code, err) == (0, "")
    assert out == (tmp_path / "plan" / "plan.json").read_text(encoding="utf-8")
    told = json.loads(out)
    assert told["found"]
    assert told["question"]["kind"] == "require"
    assert set(told) == {
        "schema_version", "dpsim_version", "name", "scenario", "question", "limits", "found",
        "answer", "infeasible", "points", "played", "warnings",
    }  # fmt: skip
    with open(tmp_path / "plan" / "plan.csv", encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(told["points"])
    for name in ("plan.png", "plan.svg"):
        assert (tmp_path / "plan" / name).stat().st_size > 1000


def test_the_answer_is_said_in_words(cli: Cli, ring: str) -> None:
    code, out, _ = cli("plan", ring, *NEED)
    assert code == 0
    assert "Which collective.bandwidth makes efficiency >= 90 %" in out
    assert "collective.bandwidth must be at least 2.1" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--require", "step_time_s<=1ms", "--vary", "collective.bandwidth"),
        ("--require", "step_time_s<=1ms", "--minimise", "step_time_s", "--vary", "cluster.ranks=2"),
    ],
)
def test_what_is_infeasible_ends_with_1(cli: Cli, ring: str, arguments: tuple[str, ...]) -> None:
    code, out, _ = cli("plan", ring, *arguments)
    assert code == 1
    assert "Nothing that was searched will do." in out
    assert "binds" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing is asked"),
        (("--require", "efficiency>=0.9"), "--vary: is missing"),
        ((*NEED, "--vary", "cluster.ranks"), "given more than once"),
        (("--require", "efficency>=0.9", "--vary", "cluster.ranks"), "did you mean 'efficiency'"),
        (("--require", "bottleneck>=1", "--vary", "cluster.ranks"), "is no number"),
        (("--require", "mfu>=0.3", "--vary", "cluster.ranks"), "has no value here"),
        (("--require", "fits", "--vary", "strategy.kind"), "is no number"),
        (("--require", "fits", "--vary", "batch.per_devise"), "did you mean 'per_device'"),
        (("--require", "steps<=3", "--vary", "cluster.ranks"), "needs training"),
        (("--deadline", "30d"), "--deadline time_to_train_s: needs training"),
        (("--deadline", "30"), "has no unit"),
        (("--largest", "batch.per_device", "--tune", "x"), "another question"),
        (("--largest", "batch.per_device", "--vary", "x=1"), "does not go with --largest"),
        (("--tune", "strategy.nothing"), "unknown key"),
        (("--minimise", "time", "--vary", "cluster.ranks=1:4"), "has no step"),
        (("--minimise", "step_time_s", "--vary", "cluster.ranks"), "want its values"),
        ((*NEED[:3], "collective.bandwidth=9:3 GB/s"), "a range goes up"),
        ((*NEED, "--relative-to", "cluster.ranks=0"), "--relative-to cluster.ranks=0"),
    ],
)
def test_bad_questions_end_with_2(
    cli: Cli, ring: str, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = cli("plan", ring, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_deadline_on_the_command_line_draws_the_front(
    cli: Cli, serial: str, tmp_path: Path
) -> None:
    code, out, _ = cli("plan", serial, "--deadline", "30min", "-o", "plan")
    assert code == 0
    assert "Take cluster.ranks = 16: cost" in out
    told = json.loads((tmp_path / "plan" / "plan.json").read_text(encoding="utf-8"))
    axes = make_figure(told).axes[0]
    (front,) = (line for line in axes.lines if line.get_gid() == "front")
    assert len(front.get_xdata()) == len(told["answer"]["front"])
    beaten = [point | {"on_front": False} for point in told["points"][:3]]
    told["points"] = [beaten[0] | {"fits": "no"}, *beaten[1:], *told["points"][3:]]
    marks = {line.get_gid(): len(line.get_xdata()) for line in make_figure(told).axes[0].lines}
    assert (marks["unfit"], marks["rest"]) == (1, 2)


def test_a_front_has_room_for_its_labels_and_the_interval_of_what_to_take() -> None:
    """Points of two machines far apart in time: times are on a logarithmic axis, no label lies on
    another one, and that of what to take is there."""
    machines = {
        "dgx-a100": {"per_node_hour": "20 usd/h"},
        "dgx-h100": {"per_node_hour": "35 usd/h"},
    }
    asked = {"price": {"machines": machines}, "training": {"samples": 1e7}}
    loaded = read("quickstart", [f"{key}={json.dumps(value)}" for key, value in asked.items()])
    told = plan(loaded, minimise="cost", vary="cluster.machine=dgx-a100,dgx-h100").document
    figure = make_figure(told)
    figure.savefig(io.BytesIO())
    axes = figure.axes[0]
    times = [point["time_to_train_s"] for point in told["points"]]
    assert max(times) > 10 * min(times)
    assert axes.get_xscale() == "log"
    places = [text.get_window_extent() for text in axes.texts]
    assert places
    for one, other in itertools.combinations(places, 2):
        assert not one.overlaps(other)
    taken = ", ".join(map(str, told["answer"]["point"]["set"].values()))
    assert taken in [text.get_text() for text in axes.texts]
    assert "its 90 % interval" in axes.get_legend_handles_labels()[1]


def test_every_kind_of_question_has_a_table_and_words(tmp_path: Path) -> None:
    rack, bench = scenario(RACK), bench_of(scenario(RACK))
    knob = knob_of(bench.scenario(), "batch.per_device", "--largest")
    answers: list[tuple[Loaded, Bench, Finding]] = [
        (rack, bench, largest(bench, knob)),
        (
            scenario(LAYERS),
            bench_of(scenario(LAYERS)),
            tuned(scenario(LAYERS), "batch.accumulation"),
        ),
        (scenario(SERIAL), bench_of(scenario(SERIAL)), chosen("cost_usd", "time_to_train_s<=1h")),
    ]
    for loaded, asked_of, answer in answers:
        told = document(loaded, asked_of, answer)
        headers, rows = columns_of(told)
        assert rows
        assert all(len(row) == len(headers) for row in rows)
        assert question_text(told).endswith("?")
        assert all(line.endswith(".") for line in answer_text(told))
        shown = io.StringIO()
        print_plan(told, Console(file=shown, width=200), "")
        assert not shown.getvalue().endswith("\n\n")  # nothing was written, and nothing says so
        assert {*FILES} <= {*write_plan(told, tmp_path / str(len(list(tmp_path.iterdir()))))}


def test_no_more_spare_nodes_are_tried_than_the_job_has() -> None:
    """The question of docs/howto/failures.md: up to the job's own 64 nodes, and not to 1,024."""
    bench = bench_of(read("llama3-8b-failures", ["recovery.spares.idle=0"]))
    knob, where = searched(bench, "recovery.spares.warm")
    assert where is None
    values = scanned(bench, knob, None)
    assert (values[0], values[-1]) == (1, 64)


def test_a_bundled_scenario_is_planned(cli: Cli) -> None:
    need = ("--require", "speedup>=10", "--vary", "cluster.ranks")
    code, out, _ = cli("plan", "amdahl", *need, "--json")
    assert code == 0
    assert json.loads(out)["answer"]["at_least"]["value"] == 20
    assert read("amdahl").scenario.sweep is not None


# -- loaders that cores limit ---------------------------------------------------------------------

#: 4 ranks of a node of 4 cores with 8 threads; a batch takes a worker 0.4 s, a step 30 ms
STARVED = (
    RING.replace("{ranks: 8}", "{ranks: 4}")
    + """
input: {loader: torch, workers: 4, decode: 400 ms, sample_bytes: 1 kB, cores: {physical: 4}}
"""
)


def starved_plan(**asked: Any) -> dict[str, Any]:
    return dpsim.plan(scenario(STARVED), **asked).document


def test_no_more_workers_are_searched_than_a_node_has_threads() -> None:
    found = starved_plan(require="exposed_input_s<=1ms", vary="input.workers")
    assert not found["found"]
    assert max(point["set"]["input.workers"] for point in found["points"]) == 8


@pytest.mark.parametrize(
    "asked",
    [{"require": "exposed_input_s<=1ms", "vary": "input.workers"}, {"tune": "input.workers"}],
)
def test_where_cores_limit_the_loader_it_is_said_from_where_on_workers_hardly_help(
    asked: dict[str, str],
) -> None:
    found = starved_plan(**asked)
    (said,) = (text for text in found["warnings"] if "the cores of a node limit" in text)
    enough = int(said.split("more workers than ")[1].split(" ")[0])
    held = [p for p in found["points"] if p["set"] and p["input_limit"] == "cores"]
    best = min(point["step_time_s"] for point in held)
    for point in held:
        near = point["step_time_s"] <= 1.05 * best
        assert near or point["set"]["input.workers"] < enough


def test_a_field_without_an_interval_has_no_column_of_it() -> None:
    found = starved_plan(require="exposed_input_s<=1ms", vary="input.workers")
    assert columns_of(found)[0] == ["input.workers", "exposed input", "step", "bottleneck", "holds"]
    assert any("interval of exposed input is not known" in text for text in answer_text(found))


def test_a_ranking_by_a_field_without_an_interval_has_no_column_of_it() -> None:
    asked = {"tune": "input.workers", "minimise": "exposed_input_s"}
    headers, rows = columns_of(starved_plan(**asked))
    assert "90 % interval" not in headers
    assert {len(row) for row in rows} == {len(headers)}
    by_speed, rows = columns_of(dpsim.plan(scenario(RACK), tune="batch.accumulation").document)
    assert "90 % interval" in by_speed
    assert {len(row) for row in rows} == {len(by_speed)}


def test_a_limit_below_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="no point has a step_time_s below 0"):
        parse_wanted("step_time_s<=-1s")
