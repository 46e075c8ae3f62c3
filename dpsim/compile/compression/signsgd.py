"""signSGD: the sign of every element travels, and the majority of ranks decides.

Bernstein et al., ICML 2018 (arXiv:1802.04434) and ICLR 2019 (arXiv:1810.05291, majority vote).
"""

from __future__ import annotations

from dpsim.compile.compression._gathered import FewBits
from dpsim.core.record import record


@record
class SignSgd(FewBits):
    """One bit an element, without a scale."""

    scaled = False

    @property
    def width(self) -> float:
        return 1.0

    def notes(self) -> tuple[str, ...]:
        return ("signSGD without error feedback need not converge (Karimireddy et al., ICML 2019)",)
