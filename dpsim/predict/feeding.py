"""Cures of loaders that hold up steps, as what-ifs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dpsim.cases.case import Case
from dpsim.cases.unlimited import unlimited
from dpsim.cases.variant import Variant
from dpsim.compile.loaders import Loader
from dpsim.compile.loaders.torch import Torch
from dpsim.compile.loaders.webdataset import Webdataset
from dpsim.machines.storage import Storage


def better_fed(case: Case) -> Iterator[Variant]:
    """`case` with other ways to feed it, the mildest first; nothing where no loader is known."""
    given = case.scenario.input
    if given is not None and given.copy is not None and not given.copy.ahead:
        ahead = replace(given.copy, ahead=True, memory="pinned")
        name = "batches copied ahead, from pinned memory"
        yield Variant(name, {"input": replace(given, copy=ahead)})
    if case.feed is None:
        return
    loader = case.feed.made.loader
    if loader is not None:
        yield from _workers(loader)
        if (storage := case.feed.made.at_hand.storage) is not None:
            yield from _storage(loader, storage)
        if case.feed.made.limit_of_cores:
            yield from _cores(case, loader)
    yield Variant("a loader that is no limit", {"input": unlimited(given)})


def _workers(loader: Loader) -> Iterator[Variant]:
    more = replace(loader, workers=max(2 * loader.workers, 1))
    yield Variant("twice the workers", {"input": more})


def _storage(loader: Loader, storage: Storage) -> Iterator[Variant]:
    """Shards in place of files, a faster storage, everything in the nodes' memory."""
    if isinstance(loader, Torch) and loader.workers and loader.in_order:
        kept: dict[str, Any] = {k: v for k, v in vars(loader).items() if k != "in_order"}
        yield Variant("samples in shards", {"input": Webdataset(**kept)})
    twice = replace(
        storage,
        bandwidth=2 * storage.bandwidth,
        per_node=storage.per_node and 2 * storage.per_node,
        iops=2 * storage.iops,
        concurrency=2 * storage.concurrency,
    )
    yield Variant("twice the storage", {"input": replace(loader, storage=twice)})
    yield Variant("all samples cached", {"input": replace(loader, storage=None, cache=0.0)})


def _cores(case: Case, loader: Loader) -> Iterator[Variant]:
    assert case.feed is not None
    cores = case.feed.made.at_hand.cores
    assert cores is not None
    more = replace(cores, physical=2 * cores.physical)
    yield Variant("twice the cores", {"input": replace(loader, cores=more)})
