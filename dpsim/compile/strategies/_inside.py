"""Systems with another one inside: what that one does to layers and to their optimizer."""

from __future__ import annotations

from dpsim.compile.strategies import Strategy
from dpsim.models.sums import GradientSums


class Around(Strategy):
    """What holds of the system inside holds of this one: how its layers are made, what its
    optimizer keeps and how gradients are added up."""

    @property
    def within(self) -> Strategy:
        """The system inside."""
        raise NotImplementedError

    @property
    def fused_kernels(self) -> bool:
        return self.within.fused_kernels

    @property
    def channels_last(self) -> bool:
        return self.within.channels_last

    @property
    def library_attention(self) -> bool:
        return self.within.library_attention

    @property
    def shares_experts(self) -> bool:
        return self.within.shares_experts

    @property
    def torch_attention(self) -> bool:
        return self.within.torch_attention

    @property
    def torch_stages(self) -> bool:
        return self.within.torch_stages

    @property
    def overlaps_tensors(self) -> bool:
        return self.within.overlaps_tensors

    @property
    def copies_weights(self) -> bool:
        return self.within.copies_weights

    @property
    def casts_gradients(self) -> bool:
        return self.within.casts_gradients

    @property
    def autocasts(self) -> bool:
        return self.within.autocasts

    @property
    def backup_workers(self) -> int:
        return self.within.backup_workers

    def sums(self, *, piped: bool) -> GradientSums | None:
        return self.within.sums(piped=piped)

    def accept_backend(self, backend: str) -> None:
        self.within.accept_backend(backend)
