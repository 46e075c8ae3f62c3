"""The dtype that matrix products run in, and whether anybody said so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from dpsim.cases.case import Case

_HALVES: tuple[Literal["bf16"], Literal["fp16"]] = ("bf16", "fp16")
#: times that 16 bits are faster at the peak from which it is told that nobody asked for them (twice
#: on GeForce boards, by clocks that are rounded)
_FASTER = 1.9


def stated(case: Case) -> bool:
    """Whether the scenario says the dtype of products."""
    said = case.scenario.precision
    return said is not None and said.compute is not None


def in_words(case: Case) -> str:
    """The dtype of its products in words, and whether nobody said it; "" where there are none."""
    if case.model.flop_per_sample() == 0:  # durations are given, whatever they were measured in
        return ""
    own = case.precision.compute
    return own if stated(case) else f"{own} (by default)"


def half_of(case: Case) -> Literal["bf16", "fp16"] | None:
    """The dtype of 16 bits in which the device multiplies fastest."""
    peak = case.device.peak if case.device else {}
    known = [dtype for dtype in _HALVES if dtype in peak]
    return max(known, key=lambda dtype: peak[dtype], default=None)


def left_in_fp32(good: Sequence[Case]) -> Iterator[str]:
    """That products are in 32 bits because nobody said otherwise, where 16 are faster."""
    for case in good:
        device, half = case.device, half_of(case)
        if device is None or half is None or stated(case) or not in_words(case):
            continue
        times = device.peak[half] / device.peak["fp32"]
        if case.precision.compute == "fp32" and times >= _FASTER:
            yield (
                f"products are in fp32, for nothing says otherwise; those in {half} are {times:.3g}"
                f" times as fast at the peak of {device.name} (precision: {{compute: {half}}})"
            )
            return
