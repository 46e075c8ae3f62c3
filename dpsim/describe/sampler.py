"""An epoch as PyTorch deals it out: DistributedSampler, DataLoader, and what is accumulated last.

DistributedSampler gives every rank ceil(len / N) samples, padded by samples from the start of the
epoch; with drop_last floor(len / N), and leaves the tail out (torch/utils/data/distributed.py,
2.13).  DataLoader cuts a rank's samples into batches, of which the last one may be smaller
(torch/utils/data/sampler.py, BatchSampler).  Where an epoch ends inside an accumulation, Hugging
Face's Trainer and Lightning step with what there is; DeepSpeed counts on into the next epoch.
"""

from __future__ import annotations

from typing import Literal

from dpsim.core.lean import dataclass
from dpsim.core.record import Flag, Refused, record


@record
class Sampler:
    """How an epoch is dealt to the ranks; whole epochs only.

    drop_last          of DistributedSampler: the tail is left out instead of padding with repeats
    loader_drop_last   of DataLoader: a batch that is not full is left out
    uneven             no padding: some ranks have a sample more, inside DDP's `join`
    last_accumulation  an epoch that ends inside an accumulation: `step` with what there is, or
                       `carry` it over to the next epoch
    """

    drop_last: Flag = False
    loader_drop_last: Flag = False
    uneven: Flag = False
    last_accumulation: Literal["step", "carry"] = "step"

    def __post_init__(self) -> None:
        if self.uneven and (self.drop_last or self.loader_drop_last):
            raise Refused("nothing is dropped where inputs are uneven", ("uneven",))


@dataclass(frozen=True)
class DealtEpoch:
    """An epoch as the sampler deals it to the ranks.

    steps               where accumulation is carried over, full ones
    samples             that all ranks train, repeats included
    samples_per_rank    of the rank that has most
    repeated, dropped   samples that are trained twice, and not at all
    micro_batches       of a rank
    last_micro_batch    its samples
    last_micro_batches  those of the last step
    """

    steps: int
    samples: int
    samples_per_rank: int
    repeated: int
    dropped: int
    micro_batches: int
    last_micro_batch: int
    last_micro_batches: int


def epoch_of(
    length: int, ranks: int, batch: int, accumulation: int, sampler: Sampler
) -> DealtEpoch:
    """An epoch of `length` samples on `ranks` ranks with micro-batches of `batch` samples.

    >>> [epoch_of(10, 4, 1, 1, Sampler(drop_last=drop)).samples for drop in (False, True)]
    [12, 8]

    Raises Refused where a rank gets no full micro-batch.
    """
    each = length // ranks if sampler.drop_last else -(-length // ranks)
    micro = each // batch if sampler.loader_drop_last else -(-each // batch)
    used = min(each, micro * batch)
    if used == 0 or (sampler.uneven and length < ranks):
        raise Refused(
            f"an epoch of {length:,} samples leaves some of {ranks:,} ranks without a batch of "
            f"{batch:,}",
            ("training", "sampler"),
        )
    dealt = length if sampler.uneven else each * ranks
    repeated = max(dealt - length, 0)
    dropped = max(length - dealt, 0) + (each - used) * ranks
    carry = sampler.last_accumulation == "carry"
    return DealtEpoch(
        steps=micro // accumulation if carry else -(-micro // accumulation),
        samples=length + repeated - dropped,
        samples_per_rank=used,
        repeated=repeated,
        dropped=dropped,
        micro_batches=micro,
        last_micro_batch=used - (micro - 1) * batch,
        last_micro_batches=(micro - 1) % accumulation + 1,
    )
