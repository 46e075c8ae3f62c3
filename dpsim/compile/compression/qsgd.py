"""QSGD: elements rounded at random to a few levels of the bucket's norm.

Alistarh et al., NIPS 2017 (arXiv:1610.02132), without its coding of zeros.
"""

from __future__ import annotations

from typing import Annotated

from dpsim.compile.compression._gathered import FewBits
from dpsim.core.record import Check, record


@record
class Qsgd(FewBits):
    """A few bits an element, and a norm for each bucket.

    bits  of an element, its sign among them
    """

    bits: Annotated[int, Check(2, 16)] = 8

    @property
    def width(self) -> float:
        return float(self.bits)

    def notes(self) -> tuple[str, ...]:
        return (
            "QSGD: the variance grows by at most min(n/s^2, sqrt(n)/s) for s levels and n elements "
            "of a bucket (Alistarh et al., arXiv:1610.02132, lemma 3.1)",
        )
