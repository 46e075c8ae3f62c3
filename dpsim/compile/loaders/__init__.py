"""The contract of this folder: how a loader makes batches, as data that can be played."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from dpsim.compile.copies import HostCopy
from dpsim.core import units
from dpsim.core.lean import dataclass
from dpsim.core.marks import Mark
from dpsim.core.plugins import Plugin
from dpsim.core.record import Check, Refused, Text, build, json_schema, record
from dpsim.machines.cores import Cores
from dpsim.machines.storage import Storage
from dpsim.variability import Number
from dpsim.variability.distributions import Distribution

Workers = Annotated[int, Check(0, 4096)]
#: bytes that a buffered read asks for: TensorFlow reads records through buffers of 256 KiB
#: (tensorflow/core/kernels/data/tf_record_dataset_op.cc, kDefaultBufferSize); others are alike
READ = 256 * 1024.0
#: a kind of samples: JPEG of some 110 kB, cut to 224 x 224 and flipped, as in ImageNet's training
PHOTOGRAPH = "photograph"


@record
class Decode:
    """What preparing a sample takes one core.

    A distribution's keys may stand beside the time: `{mean: 8 ms, kind: lognormal, spread: 0.5}`.

    time    of a sample, which a factor multiplies
    mean    instead: over all samples, whatever the factor's own mean is
    sample  instead: what a sample is, of which a time is assumed: see each loader's `photograph`
    factor  how many times as long a sample takes, at random
    """

    time: units.Seconds | None = None
    mean: units.Seconds | None = None
    sample: Literal["photograph"] | None = None
    factor: Annotated[Distribution, Plugin("variability", "kind")] | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.time, self.mean, self.sample)) != 1:
            message = "needs one of time, mean and sample: '8 ms', {mean: 8 ms, kind: lognormal, …}"
            raise ValueError(f"{message}, or photograph")

    def __float__(self) -> float:
        """The time that was given, whichever [s]."""
        return self.mean if self.mean is not None else self.time or 0.0


class DecodeTime(Mark):
    """Marks a time, a kind of samples of which one is assumed (`photograph`), or a time with a
    distribution: ``{mean: 8 ms, kind: lognormal, spread: 0.5}``."""

    #: what it is where it is one number: `plan` searches it so
    unit = units.Unit("s")

    def take(self, value: Any, file: bool) -> Decode:
        if isinstance(value, Decode):
            return value
        if not isinstance(value, Mapping):
            key = "sample" if value == PHOTOGRAPH else "time"
            return build(Decode, {key: value}, file=file)
        if "kind" not in value:
            return build(Decode, value, file=file)
        own = {key: item for key, item in value.items() if key in ("time", "mean", "sample")}
        rest = {key: item for key, item in value.items() if key not in own}
        return build(Decode, {**own, "factor": rest}, file=file)

    def json_schema(self) -> dict[str, Any]:
        time = units.Unit("s").json_schema()
        nested = json_schema(Decode)
        flat = {"type": "object", "required": ["kind"], "properties": {"mean": time, "time": time}}
        return {"anyOf": [time, {"const": PHOTOGRAPH}, nested, flat]}


@record
class SampleKind:
    """One kind of samples in a mixture.

    share         of all samples, relative to the other kinds'
    decode        what preparing a sample of it takes one core
    sample_bytes  what is read for one
    """

    share: Annotated[float, units.Unit("1", high=1e9, above=True)]
    decode: Annotated[Decode, DecodeTime()] = Decode(time=0.0)
    sample_bytes: units.Bytes = 0.0


@dataclass(frozen=True)
class Supply:
    """How batches of one loader come about.

    lines    batches that are made at once, each by a line of its own; 0: who trains makes them
    helpers  threads that share the samples of a batch
    barrier  helpers begin a batch together; else they go on with the next one's samples
    ahead    batches that are asked for before any has been taken
    ordered  batches are taken in the order in which they were asked for
    fill     samples that a line reads before its first batch of an epoch: a shuffle buffer
    """

    lines: int
    ahead: int
    helpers: int = 1
    barrier: bool = False
    ordered: bool = True
    fill: int = 0

    @property
    def threads(self) -> int:
        """Threads of a loader that prepare samples at once."""
        return max(self.lines, 1) * self.helpers


@record
class Loader:
    """A plug-in says how its workers make batches.

    workers       that prepare samples
    prefetch      batches that are made ahead: see each loader
    decode        what preparing a sample takes one core: a time, or
                  `{mean: 8 ms, kind: lognormal, spread: 0.5}` (`time:` is multiplied),
                  or `photograph`: a time is assumed, and the interval is wider (not tf_data)
    sample_bytes  what is read for a sample
    token_bytes   instead, of a text that was tokenised into shards: 2 or 4 for each token of a
                  sample
    mixture       in place of decode and sample_bytes: kinds of samples, each with its share, drawn
                  at random: `[{share: 0.9, decode: 8 ms, sample_bytes: 110 kB}, {share: 0.1, …}]`
    storage       where it is read: a storage that comes with dpsim, a file, `local` (the machine's
                  own), or a mapping; left out: reading takes no time
    samples       of an epoch, over all ranks; left out: epochs do not end
    cache         memory of each node that keeps what was read, for later epochs
    epoch         `later` has the cache filled, `first` reads everything
    collate       a worker's time for each batch beside its samples
    take          time of the training process for each batch, before it can start, and before
                  another is asked for
    start         until the loader's workers work, at the start of an epoch
    slow_batches  batches of every rank, counted from 0, that take another time: `{2: 12 s}`
    cores         of a node; left out: the machine's, and where these are not known no worker waits
                  for a core
    training_cores  cores that the process of a rank keeps busy while it trains
    worker_memory   of each worker; refused where the memory of a node does not hold all
    node_memory     of a node; left out: the machine's
    batch_bytes     of a prepared sample, of which so many are kept ahead, for that memory
    copy            how batches come to the devices, over PCIe; left out: that takes no time
    """

    tag: ClassVar[str] = "loader"
    #: what a photograph takes one core, where that is known of this loader [s]
    photograph: ClassVar[float | None] = None
    workers: Workers = 0
    prefetch: Annotated[int, Check(1, 10_000)] = 2
    decode: Annotated[Decode, DecodeTime()] = Decode(time=0.0)
    sample_bytes: units.Bytes = 0.0
    token_bytes: units.Bytes = 0.0
    mixture: tuple[SampleKind, ...] | None = None
    storage: Text | Storage | None = None
    samples: Annotated[int, Check(1, 10**12)] | None = None
    cache: units.Bytes = 0.0
    epoch: Literal["first", "later"] = "later"
    collate: units.Seconds = 0.0
    take: units.Seconds = 0.0
    start: units.Seconds = 0.0
    slow_batches: dict[Number, units.Seconds] | None = None
    cores: Cores | None = None
    training_cores: Annotated[float, units.Unit("1", low=0.0, high=1024.0)] = 1.0
    worker_memory: units.Bytes = 0.0
    node_memory: Annotated[float, units.Unit("B", high=1e18, above=True)] | None = None
    batch_bytes: units.Bytes = 0.0
    copy: HostCopy | None = None

    def __post_init__(self) -> None:
        if self.mixture is not None:
            self._check_mixture()
        if self.assumed and self.photograph is None:
            message = "what a photograph takes is not known of this loader; give a time"
            raise Refused(message, ("decode",))
        if self.token_bytes and self.sample_bytes:
            raise Refused("says the same as sample_bytes; leave one out", ("token_bytes",))
        if self.storage is not None and not any((self.token_bytes, *self.bytes_by_kind)):
            raise Refused("is missing: how much is read for a sample?", ("sample_bytes",))
        if self.cache and (self.samples is None or self.storage is None):
            raise Refused("needs samples and storage, to say what is kept", ("cache",))

    def _check_mixture(self) -> None:
        if not self.mixture:
            raise Refused("is empty: it needs kinds of samples, each with a share", ("mixture",))
        decode = self.decode.sample or float(self.decode)
        own = {"decode": decode, "sample_bytes": self.sample_bytes}
        for key, value in {**own, "token_bytes": self.token_bytes}.items():
            if value:
                raise Refused("is said by each kind of the mixture; leave it out", (key,))

    @property
    def kinds(self) -> tuple[SampleKind, ...]:
        """The kinds of samples, with the times that are assumed; one where there is no mixture."""
        found = self._given
        return tuple(self._timed(kind) for kind in found) if self.assumed else found

    @property
    def _given(self) -> tuple[SampleKind, ...]:
        return self.mixture or (
            SampleKind(share=1.0, decode=self.decode, sample_bytes=self.sample_bytes),
        )

    @property
    def assumed(self) -> bool:
        """Whether a time to prepare samples is assumed."""
        return any(kind.decode.sample for kind in self._given)

    def _timed(self, kind: SampleKind) -> SampleKind:
        if kind.decode.sample is None:
            return kind
        return replace(kind, decode=replace(kind.decode, sample=None, time=self.photograph))

    @property
    def bytes_by_kind(self) -> tuple[float, ...]:
        """What is read for a sample of each kind [B]."""
        return tuple(kind.sample_bytes for kind in self.kinds)

    def even(self, tokens: int) -> Loader:
        """The same loader of samples that are alike: of so many tokens, and of as many bytes as
        the mean over the kinds of a mixture."""
        if self.token_bytes:
            if tokens == 1:
                message = "this model's samples have no tokens; give sample_bytes"
                raise Refused(message, ("input", "token_bytes"))
            return replace(self, token_bytes=0.0, sample_bytes=self.token_bytes * tokens)
        if self.mixture is None:
            return self
        whole = math.fsum(kind.share for kind in self.kinds)
        size = math.fsum(kind.share * kind.sample_bytes for kind in self.kinds) / whole
        return replace(
            self, mixture=None, sample_bytes=size, storage=self.storage if size else None
        )

    def supply(self, ranks: int) -> Supply:
        """How batches of one of `ranks` loaders come about."""
        raise NotImplementedError

    def requests(self) -> float:
        """Requests to the storage for a sample: a file of its own is one."""
        return 1.0

    def device_seconds(self) -> float:
        """What a sample takes the training device beside the model [s]."""
        return 0.0


CONTRACT = Loader
