"""Max-min fairness: raise all rates together until a link is full, freeze the flows on it, go on
with the rest (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

#: links whose levels differ by less, as a share, are full together
SAME_LEVEL = 1e-12


def fair_rates(
    flows: Sequence[Mapping[Any, float]], capacity: Callable[[Any], float]
) -> list[float]:
    """Max-min fair rates of `flows`, each a map from link to how often it crosses it.

    All links that are full at the same level are frozen at once, so symmetric flows take one round
    however many they are.  A flow that crosses nothing has an infinite rate.
    """
    crossings = [(f, link, c) for f, flow in enumerate(flows) for link, c in flow.items() if c > 0]
    links = {link: k for k, link in enumerate(dict.fromkeys(link for _, link, _ in crossings))}
    rates = np.full(len(flows), np.inf)
    flow_of = np.array([f for f, _, _ in crossings], dtype=int)
    link_of = np.array([links[link] for _, link, _ in crossings], dtype=int)
    weight = np.array([c for _, _, c in crossings], dtype=float)
    free = np.array([capacity(link) for link in links], dtype=float)
    while len(weight):
        total = np.bincount(link_of, weight, len(links))
        level = np.divide(free, total, out=np.full(len(links), np.inf), where=total > 0)
        lowest = max(float(level.min()), 0.0)
        frozen = np.zeros(len(flows), dtype=bool)
        frozen[flow_of[level[link_of] <= lowest * (1.0 + SAME_LEVEL)]] = True
        rates[frozen] = lowest
        gone = frozen[flow_of]
        free -= lowest * np.bincount(link_of[gone], weight[gone], len(links))
        flow_of, link_of, weight = flow_of[~gone], link_of[~gone], weight[~gone]
    return [float(rate) for rate in rates]
