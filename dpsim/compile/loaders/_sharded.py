"""Loaders whose workers read shards one after the other, in a DataLoader of PyTorch."""

from __future__ import annotations

from typing import Annotated, ClassVar

from dpsim.compile.loaders import READ, Loader, Supply
from dpsim.compile.loaders.torch import Torch
from dpsim.core import units
from dpsim.core.record import Check, Flag, Refused, record


@record
class Sharded(Loader):
    """Workers of PyTorch's DataLoader that read whole shards.

    shards      of the data set; a worker without one does nothing
    shuffle     samples of the buffer that each worker fills before its first batch
    read_size   of one request to the storage
    persistent  workers stay from epoch to epoch; `start` then passes once
    """

    #: its workers decode as DataLoader's do
    photograph: ClassVar[float | None] = Torch.photograph

    shards: Annotated[int, Check(1, 10**9)] | None = None
    shuffle: Annotated[int, Check(0, 10**9)] = 0
    read_size: Annotated[float, units.Unit("B", high=1e18, above=True)] = READ
    persistent: Flag = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers == 0 and self.persistent:
            raise Refused("needs workers", ("persistent",))

    def supply(self, ranks: int) -> Supply:
        lines = self.workers
        if self.shards is not None:
            if self.shards < ranks:
                message = f"{self.shards} shards leave some of {ranks:,} ranks without one"
                raise Refused(message, ("input", "shards"))
            lines = min(lines, self.shards // ranks)
        return Supply(lines, lines * self.prefetch, fill=self.shuffle)

    def requests(self) -> float:
        return self.sample_bytes / self.read_size
