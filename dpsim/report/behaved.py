"""What workers that decide while they run made of their time, in sentences."""

from __future__ import annotations

from dpsim.core.units import show
from dpsim.predict.answer import Answer
from dpsim.predict.point import Asynchrony, computed
from dpsim.report.points import place, spoken_of
from dpsim.report.text import number, percent


def sentences(answer: Answer) -> list[str]:
    """Updates, clocks, staleness and waste, at the largest count."""
    last = spoken_of(p for p in computed(answer.points) if p.asynchrony)
    if last is None or (found := last.asynchrony) is None:
        return []
    low, high = min(found.clocks), max(found.clocks)
    clocks = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    text = (
        f"On {place(last)} the parameters are updated {number(found.updates_per_s)} times a "
        f"second; in {show(found.played_s, 's')} workers ended {clocks} clocks"
    )
    if found.staleness is not None:
        text += (
            f", and a gradient was {number(found.staleness.mean)} updates old in the mean "
            f"({number(found.staleness.p99)} at 99 %)"
        )
    if found.wasted:
        text += f", and {percent(found.wasted)} of the gradients came too late"
    return [text + ".", *_busiest(found)]


def _busiest(found: Asynchrony) -> list[str]:
    """How busy the servers are, where that is known."""
    shares = [
        (share, what)
        for use in found.servers
        for share, what in ((use.busy, "works"), (use.received, "receives"), (use.sent, "sends"))
        if share is not None
    ]
    if not shares or max(shares)[0] < 0.01:
        return []
    share, what = max(shares)
    of = "the time" if what == "works" else "what its link carries"
    return [f"The busiest server {what} {percent(min(share, 1.0))} of {of}."]
