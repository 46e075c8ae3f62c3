"""TernGrad: every element as -1, 0 or 1, times a scale.

Wen et al., NIPS 2017 (arXiv:1705.07878).
"""

from __future__ import annotations

from dpsim.compile.compression._gathered import FewBits
from dpsim.core.record import record


@record
class TernGrad(FewBits):
    """Two bits an element, and a scale for each bucket."""

    @property
    def width(self) -> float:
        return 2.0

    def notes(self) -> tuple[str, ...]:
        return (
            "TernGrad: GoogLeNet is published to lose less than 2 % of accuracy on average (Wen et "
            "al., arXiv:1705.07878, abstract)",
        )
