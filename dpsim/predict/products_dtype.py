"""The dtype that matrix products run in, and whether anybody said so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsim.cases.case import Case

#: times that 16 bits are faster at the peak from which it is told that nobody asked for them
_FASTER = 2.0


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


def left_in_fp32(good: Sequence[Case]) -> Iterator[str]:
    """That products are in 32 bits because nobody said otherwise, where 16 are faster."""
    for case in good:
        device = case.device
        if device is None or stated(case) or case.precision.compute != "fp32" or not in_words(case):
            continue
        half = next((dtype for dtype in ("bf16", "fp16") if dtype in device.peak), None)
        times = device.peak[half] / device.peak["fp32"] if half else 1.0
        if times >= _FASTER:
            yield (
                f"products are in fp32, for nothing says otherwise; those in {half} are {times:.3g}"
                f" times as fast at the peak of {device.name} (precision: {{compute: {half}}})"
            )
            return
