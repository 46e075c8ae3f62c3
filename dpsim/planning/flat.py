"""From which value of a key on a step stays as it is, and what holds it there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpsim.core.plugins import name_of
from dpsim.core.units import show
from dpsim.planning.bench import Bench
from dpsim.planning.knobs import SAID, Knob
from dpsim.planning.trials import BANDWIDTH
from dpsim.predict.connections import MORE, SOCKETS
from dpsim.predict.point import Failed, Point

#: the share of a step below which a change of it is none
SAME = 1e-3
#: values that make a stretch: two may be one by chance, or next to an edge
_FEWEST = 3


def flat(bench: Bench, knob: Knob, points: Mapping[float, Point | Failed]) -> Iterator[str]:
    """Where all of the largest `points` of a knob have one step, unlike those before."""
    steps = {at: p.step_time_s for at, p in sorted(points.items()) if isinstance(p, Point)}
    if knob.whole or not steps:
        return
    last = list(steps.values())[-1]
    stretch = list(steps)
    while stretch and abs(steps[stretch[0]] - last) > SAME * last:
        stretch.pop(0)
    level = all(abs(steps[at] - last) <= SAME * last for at in stretch)
    if level and _FEWEST <= len(stretch) < len(steps):
        yield (
            f"{knob.key}: from {knob.text(stretch[0], SAID)} on, of the values tried, a step stays "
            f"at {show(last, 's')}{_held_by_connections(bench, knob, stretch[-1], last)}"
        )


def _held_by_connections(bench: Bench, knob: Knob, value: float, step: float) -> str:
    """That TCP connections hold a `step`, where more of them make it shorter."""
    backend = bench.case().transport.backend if knob.key == BANDWIDTH else None
    if backend is None or name_of(backend) != "nccl":
        return ""
    more = {"collective.backend": "nccl", "collective.sockets": SOCKETS}
    tried = bench.point({knob.key: knob.setting(knob.text(value)), **more})
    if isinstance(tried, Failed) or tried.step_time_s > (1 - SAME) * step:
        return ""
    return (
        f": a TCP connection carries no more; with {MORE} it takes {show(tried.step_time_s, 's')}"
    )
