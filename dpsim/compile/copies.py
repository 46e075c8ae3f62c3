"""Copies of batches from the host to the devices, as operations of a step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Literal

from dpsim.compile.groups import Partition
from dpsim.compile.layout import Layout
from dpsim.compile.placement import Mesh, evenly
from dpsim.compile.program import COMPUTE, COPY_IN, Cast, Op, Program
from dpsim.core import units
from dpsim.core.record import Flag, Refused, record

#: stream and group of copies: ranks of a node copy at once
STREAM, GROUP = "host copy", "host"
#: what a thread of the host copies between two places of its memory in a second [B/s]: 256 MB at a
#: time on one core of an AMD EPYC, torch 2.13, nothing else running.  There, beside a load of 19,
#: 2.0 to 2.2e9 by the clock, and 7.7 to 9.1e9 of the time that a processor worked for the thread
#: (validation/records/host/copies.json): where no rate is said, the time may be so much another
STAGING, DOUBT = 6.1e9, (6.1 / 9.1, 6.1 / 2.0)


@record
class HostCopy:
    """Every batch is copied over PCIe, on the links that collectives use too.

    sample_bytes  of a prepared sample; fp32 pictures of 224 x 224 have 602,112 B
    memory        pinned: the device reads it by itself; pageable: a thread of the host first copies
                  it to pinned memory, and then it is copied from there
    ahead         on a stream of its own, beside the step before; else at the beginning of the step
    staging       rate at which that thread copies; left out: 6.1 GB/s are assumed, as measured on
                  a core of a server, and the interval is wider
    """

    sample_bytes: Annotated[float, units.Unit("B", high=1e18, above=True)]
    memory: Literal["pinned", "pageable"] = "pinned"
    ahead: Flag = False
    staging: units.BytesPerSecond | None = None

    def __post_init__(self) -> None:
        if self.memory == "pageable" and self.ahead:
            message = (
                "copies from pageable memory hold up who asks for them; pin it, or leave it out"
            )
            raise Refused(message, ("ahead",))

    def staging_seconds(self, samples: float) -> float:
        """What the host's copy of so many samples to pinned memory takes [s]."""
        return samples * self.sample_bytes / (self.staging or STAGING)


def shared_out(ranks: int, mesh: Mesh, rows: Collection[int], per_node: int | None) -> Partition:
    """The ranks of each node that micro-batches begin on: those of pipeline rows `rows`, each of
    which takes whole samples, as a rank of torch does that moves its batch to its device."""
    size = min(per_node or 1, ranks)
    nodes = (range(i, min(i + size, ranks)) for i in range(0, ranks, size))
    found = ([rank for rank in node if mesh.place(rank, "pipeline") in rows] for node in nodes)
    return tuple(evenly(group) for group in found if group)


def onto_first(
    cast: Cast, layout: Layout, per_node: int | None, how: HostCopy, samples: float
) -> Cast:
    """`cast` of ranks that share a model, with copies of so many samples of a step to those that
    hold a stage with which micro-batches begin."""
    rows = {layout.home(s) for s in range(len(layout.stages)) if layout.opens(s)}
    groups = shared_out(cast.ranks, layout.mesh, rows, per_node)
    first = {cast.roles[rank] for group in groups for rank in group}
    programs = tuple(
        with_copy(program, how, samples) if role in first else program
        for role, program in enumerate(cast.programs)
    )
    return replace(cast, programs=programs, groups={**cast.groups, GROUP: groups})


def with_copy(program: Program, how: HostCopy, samples: float) -> Program:
    """`program` with the copy of so many samples of a step, as `how` says."""
    size = samples * how.sample_bytes
    first = [
        Op("H2D", "collective", STREAM, operation=COPY_IN, group=GROUP, bytes=size, after_step=True)
    ]
    last: list[Op] = []
    if how.ahead:
        last = [Op("W.H2D", "wait", COMPUTE, after=(0,))]
    else:
        if how.memory == "pageable":
            staging = Op("staging", "serial", COMPUTE, seconds=how.staging_seconds(samples))
            first = [staging, first[0]._replace(after=(0,))]
        first.append(Op("W.H2D", "wait", COMPUTE, after=(len(first) - 1,)))
    moved = len(first)
    ops = (one._replace(after=tuple(k + moved for k in one.after)) for one in program.ops)
    return Program((*first, *ops, *last), program.buckets, program.listing)
