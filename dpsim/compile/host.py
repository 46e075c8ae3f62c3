"""The host issues a step's kernels one by one, ahead of the device that runs them.

A kernel starts when the device is free and the host has issued it, so the longer of the two decides
(PyTorch, notes/cuda: asynchronous execution).  A layer is issued when its last kernel is; every
other operation (a copy, a collective, an update of which nothing is said) counts as one kernel.  A
captured graph is issued as a whole by one launch (CUDA C++ Programming Guide, "CUDA Graphs").
"""

from __future__ import annotations

from dpsim.compile.program import Op, Program
from dpsim.models import Layer, Model
from dpsim.models.compute import LayerTime
from dpsim.models.recomputing import Recompute, done_again, stops_early

#: what the device does not run: a serial part of the host, a wait of one stream for another
_NO_KERNEL = ("serial", "wait")


def issue_times(
    model: Model, launch: float, kernels: float, recompute: Recompute
) -> tuple[LayerTime, ...]:
    """What issuing one micro-batch's passes through every layer takes the host [s]: `launch` for
    each kernel, of which a share of `kernels` is left."""
    return tuple(_issue_time(layer, launch * kernels, recompute) for layer in model.layers)


def _issue_time(layer: Layer, each: float, recompute: Recompute) -> LayerTime:
    again = 0
    if layer.detached:
        return LayerTime(each * layer.kernels, 0.0, "host")
    if done_again(layer, recompute) or (recompute == "selective_op" and layer.op_flop):
        again = layer.kernels - 2 * stops_early(layer, recompute)  # its product, and an addition
    elif recompute == "selective":
        again = layer.again_kernels
    backward = layer.launched_backward + again
    repeated = each * again
    return LayerTime(each * layer.kernels, each * backward, "host", layer.weight_share, repeated)


def issued(program: Program, issuing: Program, launch: float, updates: int = 1) -> Program:
    """`program` with the host's time for each operation; the optimizer is `updates` kernels.

    `issuing` is the same program compiled with `issue_times` as durations.  Raises ValueError where
    it is not the same, because the strategy makes it from durations.
    """
    if [op.name for op in program.ops] != [op.name for op in issuing.ops]:
        raise ValueError("its operations depend on how long they take")
    ops = tuple(
        op._replace(issue=_cost(op, other, launch, updates))
        for op, other in zip(program.ops, issuing.ops, strict=True)
    )
    return Program(ops, program.buckets, program.listing)


def _cost(op: Op, issuing: Op, launch: float, updates: int) -> float:
    if op.kind in ("forward", "backward"):
        return issuing.seconds
    if op.kind == "optimizer":
        return launch * updates
    return 0.0 if op.kind in _NO_KERNEL else launch


def captured(program: Program, launch: float) -> Program:
    """`program` as one graph: the host issues it with its first operation."""
    first, *rest = program.ops
    return Program((first._replace(issue=launch), *rest), program.buckets, program.listing)


def waiting(program: Program) -> Program:
    """`program` at whose end the host waits for the device, as reading the loss does."""
    ops = list(program.ops)
    ops[program.end] = ops[program.end]._replace(blocks_host=True)
    return Program(tuple(ops), program.buckets, program.listing)
