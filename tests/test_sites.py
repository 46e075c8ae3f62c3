"""Sites far apart: what crosses their links, how long it takes, what it costs."""

from __future__ import annotations

import math
from typing import Any

import pytest

import dpsim
from dpsim.cases.variant import without_communication
from dpsim.core.record import Refused
from dpsim.machines.wan import Trunk, Wan
from dpsim.predict.player import step_time

SLOW = {"between": ["a", "b"], "bandwidth": "1 Gbit/s", "latency": "20 ms"}


def apart(sizes: tuple[int, ...] = (2, 2), **more: Any) -> dict[str, Any]:
    """Sites a, b, … of so many ranks, 1 Gbit/s and 20 ms between two; 2 GB of gradients."""
    body = {"name": "body", "parameters": 10**9, "forward": "0 s", "backward": "1 s"}
    return {
        "model": {"dtype": "bf16", "layers": [body]},
        "sites": [{"name": name, "ranks": size} for name, size in zip("abcd", sizes, strict=False)],
        "links": [SLOW],
        "collective": {"backend": "ideal_ring", "latency": "0 s", "bandwidth": "100 GB/s"},
        "strategy": {"kind": "ddp"},
        "optimizer": {"kind": "none"},
        **more,
    }


@pytest.mark.parametrize("engine", ["event", "vectorised"])
def test_an_all_reduce_goes_inside_across_and_inside_again(engine: str) -> None:
    """Half of 2 GB scattered and gathered inside, 2 GB each way between: two messages of half."""
    found = dpsim.predict(apart(engine=engine)).points[0]
    inside = 2e9 / 2 / 100e9
    assert found.step_time_s == pytest.approx(1 + 2 * inside + 2 * (1e9 / 0.125e9 + 0.02), rel=1e-9)
    assert (found.bottleneck, found.ranks, found.nodes) == ("wan", 4, None)


def test_parallel_exchanges_have_equal_shares_of_the_links() -> None:
    """FSDP's shards travel side by side: as long as all of them on the link, two latencies."""
    strategy = {"kind": "diloco", "period": 1, "inner": {"kind": "fsdp"}}
    found = dpsim.predict(apart(strategy=strategy)).points[0].step_time_s
    alone = {**apart(strategy={"kind": "fsdp"}), "cluster": {"ranks": 2}}
    for key in ("sites", "links"):
        del alone[key]
    inner = dpsim.predict(alone).points[0].step_time_s
    assert found == pytest.approx(inner + 2e9 / 0.125e9 + 2 * 0.02, rel=1e-9)


def test_three_sites_gossip_around_a_ring_as_its_slowest_link_allows() -> None:
    """Each rank sends its half of 2 GB on, both of a site over one link, and then back the other
    way; inside, gradients are all-reduced before and halves gathered after."""
    sites = [{"name": name, "ranks": 2} for name in "abc"]
    rates = {("a", "b"): 8, ("b", "c"): 8, ("a", "c"): 4}
    links = [
        {"between": list(pair), "bandwidth": f"{rate} Gbit/s", "latency": f"{10 * k} ms"}
        for k, (pair, rate) in enumerate(rates.items())
    ]
    found = dpsim.predict(apart(sites=sites, links=links, strategy={"kind": "gossip"})).points[0]
    inside = (2 + 1) / 2 * 2e9 / 100e9
    assert found.step_time_s == pytest.approx(1 + inside + 2 * (2e9 / 0.5e9 + 0.02), rel=1e-9)


def test_real_machines_differ_from_site_to_site() -> None:
    """A site's own links and devices: the slower machine sets the pace of both."""
    machines = [
        {"name": n, "machine": m, "nodes": 1} for n, m in (("a", "dgx-h100"), ("b", "dgx-a100"))
    ]
    model = {"name": "resnet50"}
    strategy = {"kind": "local_sgd", "period": 100}
    both = {"model": model, "sites": machines, "links": [SLOW], "strategy": strategy,
            "batch": {"per_device": 32}, "compute": {"spread": 0}}  # fmt: skip
    found = dpsim.predict(both).points[0]
    single = {
        "model": model, "cluster": {"machine": "dgx-a100", "nodes": 1}, "strategy": {"kind": "ddp"},
        "batch": {"per_device": 32}, "compute": {"spread": 0},
    }  # fmt: skip
    alone = dpsim.predict(single).points[0].step_time_s
    crossing = 25_557_032 * 4 / 0.125e9 + 0.04  # each way, and two latencies
    assert found.step_time_s == pytest.approx(alone + crossing / 100, rel=0.01)
    assert (found.ranks, found.nodes) == (16, 2)


def test_a_ring_takes_the_links_that_are_fastest() -> None:
    fast, slow = Trunk(1e9, 0.01), Trunk(1e8, 0.05)
    square = {("a", "b"): slow, ("b", "c"): fast, ("c", "d"): slow, ("d", "a"): fast,
              ("a", "c"): fast, ("b", "d"): fast}  # fmt: skip
    lap = Wan("abcd", square).lap("abcd", 1e6)
    assert lap.order in (("a", "c", "b", "d"), ("a", "d", "b", "c"))
    assert (lap.latency, lap.per_byte) == (0.01, pytest.approx(1e-9))


def test_sites_without_a_link_send_over_others_which_carry_both() -> None:
    line = Wan("abc", {("a", "b"): Trunk(1e9, 0.01), ("b", "c"): Trunk(1e9, 0.02)})
    assert line.way("a", "c") == (("a", "b"), ("b", "c"))
    assert line.latency("c", "a") == pytest.approx(0.03)
    lap = line.lap("abc", 1e6)
    assert (lap.latency, lap.per_byte) == (pytest.approx(0.03), pytest.approx(1e-9))
    assert line.carried({("a", "c"): 3.0, ("b", "c"): 1.0}) == {("a", "b"): 3.0, ("b", "c"): 4.0}
    with pytest.raises(Refused, match="nothing joins 'a' and 'd'"):
        Wan("abcd", {("a", "b"): Trunk(1e9, 0.0)}).way("a", "d")


def test_lost_packets_slow_a_connection_as_mathis_says() -> None:
    """1,460 bytes over 40 ms, times sqrt(1.5)/sqrt(0.01): 447 kB/s; 100 of them share the bytes."""
    one = Trunk(125e6, 0.02, loss=0.01)
    assert one.rate == pytest.approx(1460 / 0.04 * math.sqrt(1.5) / 0.1)
    assert one._replace(streams=100).rate == pytest.approx(100 * one.rate)
    assert one._replace(streams=1000).rate == 125e6
    assert one._replace(loss=0.0).rate == 125e6


def test_what_crosses_priced_links_is_on_the_bill() -> None:
    link = {**SLOW, "price": "0.02 usd/GB"}
    found = dpsim.predict(apart(links=[link], price={"per_device_hour": "1 usd/h"})).points[0]
    assert found.cost is not None
    traffic = next(item for item in found.cost.items if item.name == "traffic")
    assert traffic.usd_per_step == pytest.approx(2 * 2.0 * 0.02)  # 2 GB each way
    assert found.cost_usd_per_hour == pytest.approx(
        4 + traffic.usd_per_step * 3600 / found.step_time_s
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sites": [{"name": "a", "ranks": 2}]}, "2 to 64 are accepted"),
        ({"links": None}, "what joins the sites"),
        ({"links": [{**SLOW, "between": ["a", "z"]}]}, "no site is called 'z'; there are a, b"),
        ({"links": [SLOW, {**SLOW, "between": ["b", "a"]}]}, "joined already"),
        ({"links": [{**SLOW, "between": ["a", "a"]}]}, "joins a site with itself"),
        ({"cluster": {"ranks": 3}}, "sites are clusters of their own"),
        ({"links": [{**SLOW, "between": ["a", "b", "a"]}]},
         r"links\[0\]\.between: 3 entries where 2 are needed"),
        ({"detail": "rounds"}, "detail: is not modelled over several sites"),
        ({"sites": [{"name": "a", "ranks": 2}] * 2}, "second site of the name"),
        (
            {"sites": [{"name": "a", "ranks": 2}, {"name": "b", "ranks": 4}],
             "strategy": {"kind": "diloco"}},
            "sites of 2, 4 ranks are no equal workers",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(change: dict[str, Any], said: str) -> None:
    data = {key: value for key, value in {**apart(), **change}.items() if value is not None}
    with pytest.raises(Refused, match=said):
        dpsim.predict(data)


def test_neither_cluster_nor_sites_is_refused() -> None:
    data = apart()
    del data["sites"], data["links"]
    with pytest.raises(Refused, match="cluster"):
        dpsim.predict(data)


def test_traffic_is_on_the_bill_where_nothing_else_has_a_price() -> None:
    found = dpsim.predict(apart(links=[{**SLOW, "price": "0.02 usd/GB"}])).points[0]
    assert found.cost is not None
    assert [item.name for item in found.cost.items] == ["traffic"]
    assert found.cost.usd_per_step == pytest.approx(2 * 2.0 * 0.02)


def test_free_communication_is_free_between_sites_too() -> None:
    """One second of compute is left, and all else is lost to communication."""
    point = dpsim.predict(apart(collective={"backend": "free"})).points[0]
    assert point.step_time_s == pytest.approx(1.0)
    case = dpsim.predict(apart()).outcomes[0].case
    assert step_time(without_communication(case)) == pytest.approx(1.0)
