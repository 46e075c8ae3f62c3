"""NVIDIA DALI: a pipeline whose threads share each batch."""

from __future__ import annotations

from typing import ClassVar

from dpsim.compile.loaders import READ, Loader, Supply
from dpsim.core import units
from dpsim.core.record import Refused, record


@record
class Dali(Loader):
    """`workers` is `num_threads` of a process: all share the samples of a batch, and begin the next
    one together; `prefetch` is `prefetch_queue_depth`, 2 unless said (DALI documentation,
    Pipeline).  Samples are read as records of shards.

    gpu_decode  of a sample on the device that trains (device: mixed), which delays its step
    """

    #: what DLPerf's ResNet-50 on eight GPUs shows (Oneflow-Inc/DLPerf at c89430bac64f,
    #: PyTorch/resnet50v1.5/README.md; `validation/loaders.py` works it out, on 24 assumed cores)
    photograph: ClassVar[float | None] = 0.0121
    gpu_decode: units.Seconds = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers == 0:
            raise Refused("num_threads is at least 1", ("workers",))

    def supply(self, ranks: int) -> Supply:
        return Supply(1, self.prefetch, helpers=self.workers, barrier=True)

    def requests(self) -> float:
        return self.sample_bytes / READ

    def device_seconds(self) -> float:
        return self.gpu_decode
