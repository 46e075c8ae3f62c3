"""Stretches of time, from when until when: what they cover together, and what is left of them."""

from __future__ import annotations


def union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What any of `spans` covers, sorted and disjoint."""
    merged: list[tuple[float, float]] = []
    for a, b in sorted(spans):
        if merged and a <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], b))
        else:
            merged.append((a, b))
    return merged


def minus(
    spans: list[tuple[float, float]], holes: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """`spans` without `holes`; both sorted and disjoint."""
    left, k = [], 0
    for a, b in spans:
        while k < len(holes) and holes[k][1] <= a:
            k += 1
        at = k
        while at < len(holes) and holes[at][0] < b:
            c, d = holes[at]
            if c > a:
                left.append((a, c))
            a = max(a, d)
            at += 1
        if b > a:
            left.append((a, b))
    return left


def length(spans: list[tuple[float, float]]) -> float:
    """Their lengths, added up."""
    return sum(b - a for a, b in spans)
