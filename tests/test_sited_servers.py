"""Parameter servers and workers at several sites: what messages take, where they meet, the bill."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import dpsim
from dpsim.cases.chapters import Chapters
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.predict.forecast import forecast

SIZE = 1e9  # B of parameters
LINK = {"between": ["a", "b"], "bandwidth": "0.5 GB/s", "latency": "10 ms"}
#: what a message takes between the sites
FAR = 0.01 + SIZE / 0.5e9


def apart(sizes: tuple[int, ...] = (1, 1), inside: str = "ideal", **more: Any) -> dict[str, Any]:
    """Sites a, b, … of so many workers that compute for 1 s; 10 GB/s inside."""
    body = {"name": "body", "parameters": 250_000_000, "forward": "0 s", "backward": "1 s"}
    return {
        "model": {"dtype": "fp32", "layers": [body]},
        "sites": [{"name": name, "ranks": size} for name, size in zip("abc", sizes, strict=False)],
        "links": [LINK],
        "collective": {"backend": inside, "latency": "0 s", "bandwidth": "10 GB/s"},
        "strategy": {"kind": "parameter_server", "at": ["a"]},
        "optimizer": {"kind": "none"},
        **more,
    }


def servers(**knobs: Any) -> dict[str, Any]:
    return {"kind": "parameter_server", **knobs}


def point(data: dict[str, Any]) -> Any:
    return dpsim.predict(data).points[0]


def test_who_is_far_from_the_server_crosses_the_link_twice_a_clock() -> None:
    found = point(apart())
    near, far = 1 + 2 * SIZE / 10e9, 1 + 2 * FAR
    assert found["updates_per_s"] == pytest.approx(1 / near + 1 / far, rel=1e-9)
    together = point(apart(strategy=servers(at=["a"], mode="sync")))
    assert (together.step_time_s, together.bottleneck) == (pytest.approx(far, rel=1e-9), "wan")


@pytest.mark.parametrize(("at", "crossed"), [(["a"], 2), (["b"], 1), (["a", "b"], 3 / 2)])
def test_a_link_carries_what_is_pulled_and_pushed_over_it(at: list[str], crossed: float) -> None:
    """Of a worker at a and two at b; halves of the variables where there are two servers."""
    told = servers(at=at, servers=len(at), max_shards=2, mode="sync")
    found = point(apart((1, 2), strategy=told, horizon="200 s"))
    updates = found["updates_per_s"]
    for one, other in (("a", "b"), ("b", "a")):
        moved = found["crossing_bytes_per_s"][one][other]
        assert moved == pytest.approx(crossed * SIZE * updates, rel=0.05)


def test_workers_of_a_site_share_the_link_and_a_server_s_cable() -> None:
    """All pull at once and push at once: the two of b over the link, at half of its rate each; all
    three over the server's cable, where that is the slower one."""
    both = apart((1, 2), inside="ideal_ring", strategy=servers(at=["a"], mode="sync"))
    assert point(both).step_time_s == pytest.approx(1 + 2 * (0.01 + 2 * SIZE / 0.5e9), rel=1e-9)
    slow = {"backend": "ideal_ring", "latency": "0 s", "bandwidth": "0.4 GB/s"}
    found = point({**both, "collective": slow}).step_time_s
    assert found == pytest.approx(1 + 2 * 3 * SIZE / 0.4e9, rel=0.005)


def test_servers_on_workers_nodes_are_where_these_are() -> None:
    """Each worker's own half costs nothing, and the other's crosses."""
    told = servers(servers=2, max_shards=2, colocated=True, mode="sync")
    far = 0.01 + SIZE / 2 / 0.5e9
    assert point(apart(strategy=told)).step_time_s == pytest.approx(1 + 2 * far, rel=1e-9)


def test_on_machines_a_slow_card_limits_what_a_fast_link_could_carry() -> None:
    """A message between sites of 10 Gbit/s cards: no faster over 100 Gbit/s than over 10, and a
    hundred times as long over 0.1."""
    sites = [
        {"name": name, "machine": "rack-10gbe", "nodes": 1, "gpus_per_node": 1} for name in "ab"
    ]
    base = {
        "model": {"name": "vgg16"}, "sites": sites, "batch": {"per_device": 8},
        "strategy": servers(at=["a"], mode="sync"), "collective": {"backend": "gloo"},
        "compute": {"spread": 0},
    }  # fmt: skip
    fast, even, slow = (
        point({**base, "links": [{"between": ["a", "b"], "bandwidth": f"{rate} Gbit/s"}]})
        for rate in (100, 10, 0.1)
    )
    assert fast.step_time_s == pytest.approx(even.step_time_s, rel=0.05)
    assert slow.step_time_s == pytest.approx(2 * 138_357_544 * 4 / 0.0125e9, rel=0.05)
    assert (fast.bottleneck != "wan", slow.bottleneck) == (True, "wan")


def test_what_crosses_a_priced_link_is_on_the_bill() -> None:
    """1 GB each way an update, 4 cents, and a thousand updates."""
    links = [{**LINK, "price": "0.02 usd/GB"}]
    told = servers(at=["a"], mode="sync")
    found = point(apart(strategy=told, links=links, training={"samples": 2000}))
    assert found["cost_usd"] == pytest.approx(40.0, rel=0.02)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (servers(at=["c"]), "strategy.at: no site is called 'c'; there are a, b"),
        (servers(at=["a"], colocated=True), "strategy.at: is of servers on nodes of their own"),
        (servers(at=[]), "strategy.at: is of servers on nodes of their own"),
    ],
    ids=str,
)
def test_servers_at_no_site_are_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        point(apart(strategy=told))


def test_servers_at_a_site_want_sites() -> None:
    data = {**apart(), "cluster": {"ranks": 2}}
    for key in ("sites", "links"):
        del data[key]
    with pytest.raises(Refused, match=r"strategy.at: names sites, and there is one cluster"):
        point(data)


def test_a_far_worker_that_keeps_near_ones_playing_is_refused_before_playing() -> None:
    """36 clocks of the far worker are 1.2 million of the near one; where it waits they are few."""
    slow = apart(links=[{**LINK, "bandwidth": "50 kB/s"}])
    with pytest.raises(Refused, match=r"worker 1 takes 4e\+04 s .* horizon: 100000 s is accepted"):
        dpsim.predict(slow)
    loaded = load({**slow, "horizon": "100000 s"}, Path(), "")
    assert re.fullmatch("2 ranks take about [0-9]+ s", forecast(loaded, Chapters()))
    bound = apart(links=slow["links"], strategy=servers(at=["a"], mode="ssp", bound=2))
    assert point(bound)["updates_per_s"] == pytest.approx(
        2 / (1 + 2 * (0.01 + SIZE / 5e4)), rel=0.1
    )


def test_a_link_carries_no_more_than_it_can_however_short_the_play() -> None:
    """Of 20 pulls that have begun none is over; the link was busy for all but its latency."""
    link = {**LINK, "price": "0.05 usd/GB"}
    found = point(apart((1, 20), strategy=servers(at=["a"]), links=[link], horizon="1.5 s"))
    each = 0.5e9 * (1.5 - 0.01) / 1.5
    assert found["crossing_bytes_per_s"]["a"]["b"] == pytest.approx(each, rel=1e-9)
    assert found.cost_usd_per_hour == pytest.approx(each * 3600 / 1e9 * 0.05, rel=1e-9)


def test_pulls_that_begin_as_playing_ends_have_not_crossed() -> None:
    found = point(apart(strategy=servers(at=["a"], mode="sync")))["crossing_bytes_per_s"]
    there, back = found["a"]["b"], found["b"]["a"]
    assert there == pytest.approx(SIZE / (1 + 2 * FAR), rel=1e-9)
    assert back == pytest.approx(there, rel=1e-9)
