"""Flows that come and go: as if all rates were worked out anew at each start and end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsim.play.network import SharedLinks, fair_rates


class Sent(NamedTuple):
    """A flow: when it starts, bytes on its links, and how long it takes by itself (None: as long
    as its links)."""

    start: float
    loads: dict[int, float]
    alone: float | None


@st.composite
def traffic(draw: Any) -> tuple[list[float], list[Sent]]:
    capacity = draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=6))
    links = st.sets(st.integers(0, len(capacity) - 1), min_size=1)
    flows = []
    for _ in range(draw(st.integers(1, 9))):
        size = draw(st.sampled_from([1.0, 3.0, 10.0]))
        loads = {link: size * draw(st.sampled_from([0.5, 1.0])) for link in draw(links)}
        quickest = max(load / capacity[link] for link, load in loads.items())
        alone = draw(st.sampled_from([None, quickest * 1.5, quickest * 4.0]))
        flows.append(Sent(draw(st.sampled_from([0.0, 0.5, 1.0, 1.7, 4.0])), loads, alone))
    return capacity, flows


def ends(capacity: Sequence[float], flows: Sequence[Sent]) -> list[float]:
    """When each flow is through."""
    env = simpy.Environment()
    network = SharedLinks(env, lambda link: capacity[link])
    found = [math.nan] * len(flows)

    def flow(number: int, sent: Sent) -> Any:
        yield env.timeout(sent.start)
        yield network.transfer(sent.loads, sent.alone)
        found[number] = env.now

    for number, sent in enumerate(flows):
        env.process(flow(number, sent))
    env.run()
    return found


def expected(capacity: Sequence[float], flows: Sequence[Sent]) -> list[float]:
    """The same: rates of all flows, from one start or end to the next."""
    now, found = 0.0, [math.nan] * len(flows)
    left = dict.fromkeys(range(len(flows)), 1.0)
    while left:
        present = [k for k in left if flows[k].start <= now]
        limits: list[dict[Any, float]] = []
        for k in present:  # in shares of the flow; its own pace is a link of its own
            alone = flows[k].alone
            own = {} if alone is None else {("own", k): alone}
            limits.append({**flows[k].loads, **own})
        rates = fair(limits, capacity)
        coming = [flows[k].start for k in left if flows[k].start > now]
        going = [now + left[k] / rate for k, rate in zip(present, rates, strict=True)]
        then = min(coming + going)
        for k, rate in zip(present, rates, strict=True):
            left[k] -= rate * (then - now)
            if left[k] <= 1e-12:
                found[k] = then
                del left[k]
        now = then
    return found


def fair(limits: Sequence[dict[Any, float]], capacity: Sequence[float]) -> list[float]:
    """Max-min fair in bytes of each flow's most loaded link, returned in shares of the flow."""
    most = [
        max(load for link, load in one.items() if not isinstance(link, tuple)) for one in limits
    ]
    crossings = [
        {link: load / m for link, load in one.items()} for one, m in zip(limits, most, strict=True)
    ]
    rates = fair_rates(crossings, lambda link: 1.0 if isinstance(link, tuple) else capacity[link])
    return [rate / m for rate, m in zip(rates, most, strict=True)]


@settings(max_examples=300, deadline=None)
@given(traffic())
def test_flows_end_as_if_rates_were_always_worked_out_for_all(
    drawn: tuple[list[float], list[Sent]],
) -> None:
    assert ends(*drawn) == pytest.approx(expected(*drawn), rel=1e-9)


def test_a_flow_that_shares_no_link_takes_one_event() -> None:
    env = simpy.Environment()
    network = SharedLinks(env, lambda link: 1.0)
    shapes = [network.shape({link: 1.0 + link}) for link in range(5)]
    done: list[float] = []
    for shape in shapes:
        assert shape is not None
        network.start(shape, lambda _: done.append(env.now))
    steps = 0
    while env.peek() < math.inf:
        env.step()
        steps += 1
    assert (steps, done) == (5, [1.0, 2.0, 3.0, 4.0, 5.0])
