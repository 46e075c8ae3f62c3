"""Provisions: what a loader has at hand in a node: cores, memory, and where samples are read."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

from dpsim.compile.loaders import Decode, Loader
from dpsim.compile.loaders.torch import Torch
from dpsim.core.files import read_text
from dpsim.core.lean import dataclass
from dpsim.core.places import below
from dpsim.core.record import Refused
from dpsim.describe.sections import Input
from dpsim.machines.cores import Cores
from dpsim.machines.machine import Machine
from dpsim.machines.storage import Storage, load_storage
from dpsim.models.timed_loader import parse

#: bytes of a record
LARGEST = 1_000_000


def fed_by(given: Loader | Input | None, base: Path) -> Loader | Input | None:
    """`given` with its record read, which is below `base`: that is a DataLoader."""
    if not isinstance(given, Input) or given.record is None:
        return given
    where = ("input", "record")
    try:
        found = parse(read_text(below(base, given.record, "input.record"), LARGEST))
    except Refused as error:
        raise Refused(f"{given.record}: {error.message}", where) from None
    except OSError as error:
        raise Refused(f"{given.record}: {error.strerror}", where) from None
    workers = found.workers if given.workers is None else given.workers
    decode = Decode(time=found.seconds(given.epoch))
    return Torch(workers=workers, prefetch=found.prefetch, decode=decode, start=found.first)


@dataclass(frozen=True)
class Provisions:
    """What `given`, a loader of samples of so many tokens, has at hand on `machine`; without a
    loader, or a machine, little is known."""

    given: Loader | None
    machine: Machine | None
    base: Path
    tokens: int = 1

    @cached_property
    def loader(self) -> Loader | None:
        """The loader, of samples of the mean size."""
        return self.given and self.given.even(self.tokens)

    @cached_property
    def storage(self) -> Storage | None:
        """Where samples are read; None where reading takes no time."""
        named = self.loader.storage if self.loader else None
        if isinstance(named, str):
            try:
                return self._named(named)
            except Refused as error:
                raise Refused(error.message, ("input", "storage")) from None
        return named

    def _named(self, name: str) -> Storage:
        if name != "local":
            return load_storage(name, self.base)
        found = self.machine.storage if self.machine else None
        if found is None:
            which = (
                f"machine {self.machine.name}" if self.machine else "a cluster without a machine"
            )
            raise Refused(f"no local storage of {which} is known; name one, or give its numbers")
        return found

    @property
    def cores(self) -> Cores | None:
        """Of a node; None where they are not known."""
        own = self.loader.cores if self.loader else None
        return own or (self.machine.cores if self.machine else None)

    @cached_property
    def missed(self) -> float:
        """The share of samples that are read from the storage, not from the cache."""
        loader = self.loader
        if loader is None or not loader.cache or loader.epoch == "first":
            return 1.0
        size = (loader.samples or 0) * loader.sample_bytes
        return max(1.0 - loader.cache / size, 0.0)

    @property
    def size(self) -> float:
        """What is read for a sample, in the mean [B]."""
        return self.loader.sample_bytes if self.loader else 0.0

    def reading(self, nodes: int) -> tuple[float, float]:
        """What a reader that nobody disturbs waits for a sample [s], and how many samples all
        readers of `nodes` nodes get a second."""
        if self.storage is None or self.loader is None or self.missed == 0:
            return 0.0, math.inf
        size, requests = self.loader.sample_bytes, self.loader.requests()
        alone = self.missed * self.storage.seconds(size, requests)
        return alone, self.storage.rate(size, requests, nodes) / self.missed

    def check_memory(self, loader: Loader, ahead: int, loaders: int) -> None:
        """Refuse workers of `loaders` loaders, which keep so many samples `ahead`, that the memory
        of a node does not hold."""
        own = self.machine.host_memory if self.machine else 0.0
        have = loader.node_memory or own
        if loader.worker_memory and not have:
            where = f"a node of {self.machine.name}" if self.machine else "a node"
            message = f"the memory of {where} is not known, which workers share; say how much it is"
            raise Refused(message, ("input", "node_memory"))
        need = loaders * (loader.workers * loader.worker_memory + ahead * loader.batch_bytes)
        if have and need > have:
            message = (
                f"{loaders * loader.workers} workers and their batches take {need / 1e9:,.0f} GB "
                f"of a node, which has {have / 1e9:,.0f} GB"
            )
            raise Refused(message, ("input", "workers"))
