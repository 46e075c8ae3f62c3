"""Advice in a sentence: what would make it fit."""

from __future__ import annotations

from dpsim.predict.advice import Advice


def sentence(advice: Advice) -> str:
    """One change, or a pair, what is then needed, and what it costs."""
    ratio = advice.throughput_ratio
    parts = [f"about {ratio:.2g} x the throughput"] if ratio else []
    parts += [advice.cost] if advice.cost else []
    cost = f" ({'; '.join(parts)})" if parts else ""
    needed, there = advice.memory_bytes / 1e9, advice.capacity_bytes / 1e9
    return f"It fits with {' and '.join(advice.changes)}: {needed:.1f} GB of {there:.1f} GB{cost}."
