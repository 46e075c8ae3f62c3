"""PyTorch's DataLoader over a dataset of single samples."""

from __future__ import annotations

from typing import ClassVar

from dpsim.compile.loaders import Loader, Supply
from dpsim.core.record import Flag, Refused, record


@record
class Torch(Loader):
    """Each worker makes a whole batch alone.  `prefetch` batches a worker are asked for at the
    start of an epoch, in turn, and one more whenever one is taken; they are taken in order, so
    that a slow one holds up those behind it (torch 2.13, torch/utils/data/dataloader.py).  Without
    workers the training process makes its batches itself.

    in_order    false: what is ready is taken first
    persistent  workers stay from epoch to epoch; `start` then passes once
    """

    #: what DLPerf's ResNet-50 on one GPU shows (Oneflow-Inc/DLPerf at c89430bac64f,
    #: PyTorch/resnet50v1.5/README.md; `validation/loaders.py` works it out, on 24 assumed cores)
    photograph: ClassVar[float | None] = 0.0261
    in_order: Flag = True
    persistent: Flag = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers == 0 and (self.persistent or not self.in_order):
            key = "persistent" if self.persistent else "in_order"
            raise Refused("needs workers", (key,))

    def supply(self, ranks: int) -> Supply:
        return Supply(self.workers, self.workers * self.prefetch, ordered=self.in_order)
