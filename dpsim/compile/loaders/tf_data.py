"""tf.data: records of shards, a parallel map, batches, a prefetch."""

from __future__ import annotations

from dpsim.compile.loaders import READ, Loader, Supply
from dpsim.core.record import Refused, record


@record
class TfData(Loader):
    """`workers` is `num_parallel_calls` of the map, whose calls go on with the samples of the next
    batch; `prefetch` batches are kept ready beside the one that is being made (tf.data guide,
    "Better performance with the tf.data API").  Samples are read as records of shards.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers == 0:
            raise Refused("num_parallel_calls is at least 1", ("workers",))

    def supply(self, ranks: int) -> Supply:
        return Supply(1, self.prefetch + 1, helpers=self.workers)

    def requests(self) -> float:
        return self.sample_bytes / READ
