"""Copies of batches from the host to the devices, as operations of a step."""

from __future__ import annotations

from typing import Annotated, Literal

from dpsim.compile.program import COMPUTE, COPY_IN, Op, Program
from dpsim.core import units
from dpsim.core.record import Flag, Refused, record

#: stream and group of copies: ranks of a node copy at once
STREAM, GROUP = "host copy", "host"
#: what a thread of the host copies between two places of its memory in a second [B/s]: 256 MB at a
#: time on one core of an AMD EPYC, torch 2.13, nothing else running, as
#: `validation/measure_host_copy.py` measures it (there 2 to 3 GB/s beside a load of 15)
STAGING = 6.1e9


@record
class HostCopy:
    """Every batch is copied over PCIe, on the links that collectives use too.

    sample_bytes  of a prepared sample; fp32 pictures of 224 x 224 have 602,112 B
    memory        pinned: the device reads it by itself; pageable: a thread of the host first copies
                  it to pinned memory, and then it is copied from there
    ahead         on a stream of its own, beside the step before; else at the beginning of the step
    staging       rate at which that thread copies; left out: measured on a core of a server
    """

    sample_bytes: Annotated[float, units.Unit("B", high=1e18, above=True)]
    memory: Literal["pinned", "pageable"] = "pinned"
    ahead: Flag = False
    staging: units.BytesPerSecond = STAGING

    def __post_init__(self) -> None:
        if self.memory == "pageable" and self.ahead:
            message = (
                "copies from pageable memory hold up who asks for them; pin it, or leave it out"
            )
            raise Refused(message, ("ahead",))


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
            staging = Op("staging", "serial", COMPUTE, seconds=size / how.staging)
            first = [staging, first[0]._replace(after=(0,))]
        first.append(Op("W.H2D", "wait", COMPUTE, after=(len(first) - 1,)))
    moved = len(first)
    ops = (one._replace(after=tuple(k + moved for k in one.after)) for one in program.ops)
    return Program((*first, *ops, *last), program.buckets, program.listing)
