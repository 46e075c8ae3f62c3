"""Storage: where samples are read from, and how much of it readers can have together."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Literal

from dpsim.core import units, unknown, yamlfile
from dpsim.core.places import data_folder, home_of
from dpsim.core.record import Check, Refused, build, record

#: what a storage is: inside every node, or one that all nodes share
Kind = Literal["nvme", "page_cache", "nfs", "lustre", "object"]
#: kinds that every node has for itself
LOCAL = ("nvme", "page_cache")
Requests = Annotated[float, units.Unit("1", low=0.0, high=1e12)]


@record
class Storage:
    """What all readers together can have; a local one is in every node, the others are shared.

    kind         nvme and page_cache are in every node; nfs, lustre and object are shared by all
    bandwidth    of the whole storage (of a local one: in each node)
    per_node     most that one node gets of a shared one; left out: no less than `bandwidth`
    iops         requests a second; 0: no limit
    latency      of a request, until its first byte
    per_reader   rate of one reader alone, after that; left out: no less than `bandwidth`
    concurrency  requests that are served at once; 0: no limit
    sources      where numbers are from, by key
    """

    kind: Kind
    bandwidth: units.BytesPerSecond
    per_node: units.BytesPerSecond | None = None
    iops: Requests = 0.0
    latency: units.Seconds = 0.0
    per_reader: units.BytesPerSecond | None = None
    concurrency: Annotated[int, Check(0, 10**9)] = 0
    sources: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def local(self) -> bool:
        """Whether every node has one of its own."""
        return self.kind in LOCAL

    def seconds(self, size: float, requests: float) -> float:
        """What one reader that nobody disturbs waits for `size` bytes in `requests` requests, one
        after the other [s]."""
        rate = min(self.bandwidth, self.per_reader or math.inf, self.per_node or math.inf)
        return requests * self.latency + size / rate

    def rate(self, size: float, requests: float, nodes: int) -> float:
        """Samples of `size` bytes in `requests` requests each that `nodes` nodes get a second.

        The least of bandwidth, requests a second and requests under way over latency (Little's
        law: Little, Operations Research 9(3), 1961)."""
        share = nodes if self.local else 1
        limits = [math.inf]
        if size > 0:
            per_node = nodes * (self.per_node or math.inf)
            limits.append(min(share * self.bandwidth, per_node) / size)
        if self.iops and requests:
            limits.append(share * self.iops / requests)
        if self.concurrency and requests and self.latency:
            limits.append(share * self.concurrency / (self.latency * requests))
        return min(limits)


def storage_names() -> tuple[str, ...]:
    """The storages that come with dpsim, sorted."""
    return tuple(sorted(path.stem for path in data_folder("topologies").glob("storage/*.yaml")))


def load_storage(name: str, base: Path) -> Storage:
    """The storage of that name, or in that file below `base`; Refused where there is none."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        path, shown = home_of(base, name) / name, name
    elif name in storage_names():
        path, shown = data_folder("topologies") / "storage" / f"{name}.yaml", f"{name}.yaml"
    else:
        known = (*storage_names(), "local")
        raise Refused(unknown.sentence(name, known, f"no storage {name[:60]!r}"))
    data, lines = yamlfile.load(path, shown)
    try:
        return build(Storage, data, file=True)
    except Refused as error:
        raise yamlfile.located(error, shown, lines) from None
