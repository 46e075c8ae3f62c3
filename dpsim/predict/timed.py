"""Measured steps as options of commands say them: `8=0.41s`, `8,accumulation=4=1.2s`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpsim.cases.case import Case
from dpsim.cases.variant import at_ranks, batched
from dpsim.core.record import Refused, build
from dpsim.describe.scenario import Loaded
from dpsim.describe.sections import CalibrationPoint, made_up
from dpsim.predict.level import Level, level_of, point_of
from dpsim.predict.peak import check_possible
from dpsim.predict.repeats import run_of

#: what may be said of a point beside its ranks
KEYS = ("per_device", "global", "accumulation")
#: steps that are checked at once; each is played some dozens of times
MOST = 16
#: within which share two ways to write a step are one
_SAME = 1e-3


@dataclass(frozen=True)
class TimedCases:
    """Cases of measured points, the fewest ranks first, and how long their steps took [s]; `found`
    is what calibration found, and the cases are at that level."""

    cases: tuple[Case, ...]
    seconds: tuple[float, ...]
    found: Level | None


def timed(loaded: Loaded, step_times: Sequence[str], throughputs: Sequence[str]) -> TimedCases:
    """The measured steps of `loaded` that the options say.

    Raises Refused where an option says no point, or one that the scenario cannot have.
    """
    texts = [("step_time", text) for text in step_times]
    texts += [("throughput", text) for text in throughputs]
    if not 1 <= len(texts) <= MOST:
        raise Refused(
            f"{len(texts)} measured steps; 1 … {MOST} are accepted: --step-time 8=0.41s, or "
            "--throughput '8=6154 images/s'"
        )
    found = level_of(loaded)
    plain = Case(loaded.points[0], loaded.base)
    first = found.of(plain) if found else plain
    asked = (_measured(plain, found, *text) for text in texts)
    pairs = sorted(asked, key=lambda pair: pair[0].ranks)
    calibrate = loaded.scenario.calibrate
    differs = calibrate is not None and calibrate.synthetic and not made_up(first.scenario.input)
    if found and not differs and all(_calibrates(found, first, *pair) for pair in pairs):
        raise Refused(
            f"{texts[0][1][:80]} is the very step that calibrates the prediction, which tells "
            "nothing of it; check another count, or leave it out: --set calibrate=null"
        )
    return TimedCases(tuple(c for c, _ in pairs), tuple(s for _, s in pairs), found)


def _calibrates(found: Level, first: Case, case: Case, seconds: float) -> bool:
    """Whether that was measured of `case` which set the level of `first`, alone or with others."""
    if found.fit is not None:
        here = run_of(case)
        return any(
            point.run == here and math.isclose(seconds, point.measured_s, rel_tol=_SAME)
            for point in found.fit.residuals
        )
    if case.ranks != found.ranks:
        return False
    same = case.global_batch == at_ranks(first, found.ranks).global_batch
    return same and math.isclose(seconds, found.step_time, rel_tol=_SAME)


def _measured(plain: Case, found: Level | None, kind: str, text: str) -> tuple[Case, float]:
    """The case of a point, as it was calibrated, and its measured step [s]."""
    option = f"--{kind.replace('_', '-')} {text[:80]}"
    try:
        point = point_of(plain, parsed(kind, text))
        case = batched(at_ranks(plain, point.ranks), dict(point.batch))
        case = found.of(case) if found else case
        seconds = point.step_time(case.global_batch, case.model.tokens, case.model.sample)
        check_possible(case, seconds, again=True)
        return case, seconds
    except Refused as error:
        raise Refused(f"{option}: {error}") from None


def parsed(kind: str, text: str) -> CalibrationPoint:
    """`RANKS=VALUE` or `RANKS,KEY=N,…=VALUE` as a point; Refused where it is neither."""
    head, equals, value = text.rpartition("=")
    ranks, *rest = head.split(",")
    pairs = [part.partition("=") for part in rest]
    if not equals or not ranks.strip().isdecimal() or any(key not in KEYS for key, _, _ in pairs):
        raise Refused(
            f"is no RANKS=VALUE; write 8=0.41s, or 8,accumulation=4=1.2s (with {', '.join(KEYS)})"
        )
    if any(not number.isdecimal() or len(number) > 12 for _, _, number in pairs):
        raise Refused("a key of the batch is a whole number: 8,accumulation=4=1.2s")
    said: dict[str, object] = {key: int(number) for key, _, number in pairs}
    ranks = ranks.strip()[:12]
    return build(CalibrationPoint, {**said, "ranks": int(ranks), kind: value.strip()}, file=True)
