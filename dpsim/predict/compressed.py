"""What compressing gradients brings: beside the same step without, up to which bandwidth, and
over a whole run, of which a part goes before it begins.

Two steps take equally long where the network is so many times as fast: transfers take 1/x of their
time, latencies and coding what they take.  Each side is played, not derived.
"""

from __future__ import annotations

from collections.abc import Callable

from dpsim.cases.case import Case
from dpsim.cases.plays import Stretch
from dpsim.cases.variant import with_compression
from dpsim.compile.compression import Compression
from dpsim.core.lean import dataclass
from dpsim.core.plugins import name_of
from dpsim.predict.player import step_time

#: steps over which two cases are compared, where anything is random
_STEPS = 8
#: how far the bandwidth of a break-even may be from that of the scenario, and how often the range
#: is widened before that is said
_FARTHEST, _WIDER = 1e4, 4.0
#: relative width of the break-even's bracket, and plays of each side at most
_NEAR, _PLAYS = 1e-6, 40


@dataclass(frozen=True)
class CompressionGain:
    """A compressed step beside the same without.

    step_time_s, uncompressed_step_time_s  of the two [s]
    throughput_gain  of compressing: below 0 it loses; None where a step takes no time
    wins_below     how many times the bandwidth that there is it wins up to; None: at none that was
                   looked at, or at all
    wins_below_bandwidth  the same of a link between nodes, or of a toy's one [B/s]; None: not known
    run_speedup    of a whole run, of which a part goes before compression begins, over one
                   without; None where nothing goes before, or the run's length is not known
    break_even_density  of sparse gradients, the density at which they send as much as dense ones
    """

    kind: str
    step_time_s: float
    uncompressed_step_time_s: float
    throughput_gain: float | None
    wins_below: float | None
    wins_below_bandwidth: float | None = None
    run_speedup: float | None = None
    break_even_density: float | None = None


def compression_gain(case: Case, steps: float | None) -> CompressionGain | None:
    """What compressing brings in the steady state, and in a run of so many `steps` (None: not
    known); None where nothing is compressed."""
    codec = case.scenario.compressed
    if codec is None or case.ranks == 1:
        return None
    plain = with_compression(case, None)

    def gain(transfer: float) -> float:
        stretch = Stretch(transfer=transfer)
        return _short(plain, stretch) - _short(case, stretch)

    now, before = _short(case, Stretch()), _short(plain, Stretch())
    stretched = _root(gain, before - now)
    wins = None if stretched is None else 1.0 / stretched
    link = _link(case)
    return CompressionGain(
        kind=name_of(codec),
        step_time_s=now,
        uncompressed_step_time_s=before,
        throughput_gain=before / now - 1.0 if now > 0 else None,
        wins_below=wins,
        wins_below_bandwidth=None if wins is None or link is None else wins * link,
        run_speedup=_run_speedup(case, codec, steps, now, before),
        break_even_density=codec.break_even_density(case.mesh.holders),
    )


def _run_speedup(
    case: Case, codec: Compression, steps: float | None, now: float, before: float
) -> float | None:
    one, two = codec.phases(1e9), codec.phases(2e9)
    if steps is None and one and one[-1].last * 2 == two[-1].last:
        steps = 1.0  # shares of a run say as much of a run of any length
    if not one or steps is None or now <= 0:
        return None
    return before / (now * over_run(case, steps, now))


def _short(case: Case, stretch: Stretch) -> float:
    return step_time(case, stretch=stretch, at_most=_STEPS)


def _link(case: Case) -> float | None:
    """Bandwidth of what the scenario calls one [B/s]: a NIC, else a toy's."""
    if case.topology is None:
        return getattr(case.backend, "bandwidth", None)
    network = getattr(case.machine and case.machine.network, "link", None)
    own = case.scenario.cluster.inter_node_bandwidth or (network and network.bandwidth)
    return own if own and (case.nodes or 1) > 1 else None


def _root(gain: Callable[[float], float], now: float) -> float | None:
    """The stretch of transfers at which `gain`, which is `now` at 1, becomes zero; None where it
    does not within reach.  A win is looked for on faster networks, a loss on slower ones."""
    factor = 1 / _WIDER if now > 0 else _WIDER
    near, value, far = 1.0, now, 1.0
    while 1 / _FARTHEST <= far * factor <= _FARTHEST:
        far *= factor
        other = gain(far)
        if (other > 0) != (now > 0):
            return _between(gain, (near, value), (far, other))
        near, value = far, other
    return None


def _between(
    gain: Callable[[float], float], one: tuple[float, float], other: tuple[float, float]
) -> float:
    """The zero between two stretches with gains of different signs: regula falsi (Illinois), which
    is exact where gains are straight."""
    (a, at_a), (b, at_b) = one, other
    kept = 0
    for _ in range(_PLAYS):
        if at_a == at_b:
            return a
        middle = b - at_b * (b - a) / (at_b - at_a)
        value = gain(middle)
        if value == 0 or abs(a - b) <= _NEAR * abs(middle):
            return middle
        if (value > 0) == (at_b > 0):
            b, at_b = middle, value
            at_a, kept = (at_a / 2 if kept == 1 else at_a), 1
        else:
            a, at_a = middle, value
            at_b, kept = (at_b / 2 if kept == -1 else at_b), -1
    return middle


def over_run(case: Case, steps: float, time: float) -> float:
    """By what the mean step of a run of so many steps takes longer than `time`, that of the steady
    state [s]: what goes before compression begins is played as it is then."""
    codec = case.scenario.compressed
    phases = codec.phases(steps) if codec is not None and steps > 0 else ()
    begun, seconds = 0.0, 0.0
    for phase in phases:
        length = min(phase.last, steps) - begun
        if length > 0:
            seconds += length * _phase_time(case, phase.compression, time)
            begun += length
    return (seconds + (steps - begun) * time) / (steps * time) if begun and time > 0 else 1.0


def throughout(case: Case, steps: float) -> Case:
    """`case` with what goes before compression begins, where a run of so many steps ends before
    that; else itself."""
    codec = case.scenario.compressed
    phases = codec.phases(steps) if codec is not None and steps > 0 else ()
    if phases and phases[0].last >= steps:
        return with_compression(case, phases[0].compression)
    return case


def _phase_time(case: Case, compression: Compression | None, time: float) -> float:
    """A step of `case` with another compression, as its steps of now are to `time` [s]."""
    now = _short(case, Stretch())
    then = _short(with_compression(case, compression), Stretch())
    return time * then / now if now > 0 else then
