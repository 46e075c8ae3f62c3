"""Whether collectives ask more of a link than it has: one pass tells what looking at all does."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from dpsim.backends import Phase, Plan
from dpsim.play import NotApplicable
from dpsim.play.vectorised.sharing import Sharing, Talk

LINKS = [(("nic", node), ("leaf", 0)) for node in range(5)]
BANDWIDTH = 1.0


def plan(chance: random.Random) -> Plan:
    """A plan that crosses some links, each with all or half of what it carries."""
    crossed = chance.sample(LINKS, chance.randint(1, 3))
    loads: Any = {link: chance.choice((0.5, 1.0)) for link in crossed}
    slow = chance.choice((1.0, 2.0, 4.0))  # how much slower its own pace is than its links
    return Plan((Phase(0.0, slow, loads, max(loads.values())),), None, "none", 1.0)


def turns(chance: random.Random, width: int) -> list[tuple[float, float]]:
    """When the collectives of one group run: one after the other, by each of `width` workers."""
    found = []
    for _ in range(width):
        time = 0.0
        for _ in range(chance.randint(1, 4)):
            begin = time + chance.choice((0.0, 0.5, 1.0))
            time = begin + chance.choice((0.0, 1.0, 2.5))
            found.append((begin, time))
    return sorted(found)


def overfull(uses: list[tuple[float, float, Plan]]) -> bool:
    """Whether at the begin of some use those under way ask more of a link than it has."""
    for k, (begin, _, own) in enumerate(uses):
        there = [other for _, end, other in uses[:k] if end > begin]
        for link, rate in own.rates.items():
            others = [p.rates[link] for p in there if link in p.rates]
            if others and rate + sum(others) > BANDWIDTH * (1 + 1e-9):
                return True
    return False


@pytest.mark.parametrize("width", [1, 2])
def test_a_link_is_refused_exactly_where_those_at_once_ask_too_much_of_it(width: int) -> None:
    topology: Any = SimpleNamespace(link=lambda _: SimpleNamespace(bandwidth=BANDWIDTH))
    verdicts = []
    for seed in range(300):
        chance = random.Random(f"{width} {seed}")
        sharing, uses = Sharing(topology, width), []
        for group in range(chance.randint(1, 4)):
            plans = [plan(chance) for _ in range(2)]
            for begin, end in turns(chance, width):
                own = [chance.choice(plans)]
                sharing.note(Talk("data", [("all", group)], own, [begin], [end]))
                uses.append((begin, end, own[0]))
        expected = overfull(sorted(uses, key=lambda use: use[0]))
        try:
            sharing.check()
            verdicts.append(False)
        except NotApplicable:
            verdicts.append(True)
        assert verdicts[-1] == expected, seed
    assert 20 < sum(verdicts) < 280  # both happen
