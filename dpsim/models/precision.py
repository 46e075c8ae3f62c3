"""Precision and optimizer: which dtype what is kept, computed and reduced in."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dpsim.core import units
from dpsim.core.record import Flag, Natural, record

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "nvfp4"]
Stored = Literal["fp64", "fp32", "bf16", "fp16"]


@record
class Precision:
    """Dtypes of a training run.

    parameters  what the optimizer's parameters and DDP's gradients are kept in.  Under
                torch.autocast they stay fp32, so DDP's buckets are fp32 too.
    compute     what matrix products run in (tf32 too); FSDP gathers parameters in it
    reduce      what FSDP reduces gradients in; None is the framework's own default
    wide_first, wide_last   blocks at the model's beginning and end whose products stay in 16 bits
    """

    parameters: Stored = "fp32"
    compute: Dtype = "fp32"
    reduce: Stored | None = None
    wide_first: Natural = 0
    wide_last: Natural = 0


@record
class PrecisionSpec:
    """The `precision:` section: what is not given is the model's own dtype.

    parameters  what the optimizer's parameters and DDP's gradients are kept in
    compute     what matrix products run in (tf32 too; fp32 is strict, where frameworks may multiply
                in tf32 unasked); without it that of parameters of 16 bits, which torch multiplies
                in no other; FSDP gathers parameters in it, in 16 bits with fp8 and nvfp4, in
                which a block's products alone run
    reduce      what FSDP reduces gradients in; without it, the framework's own default
    wide_first, wide_last   with fp8 and nvfp4: so many blocks at the model's beginning and end stay
                in 16 bits (Megatron-LM's `num_layers_at_start_in_bf16`, `…_at_end_…`)
    """

    parameters: Stored | None = None
    compute: Dtype | None = None
    reduce: Stored | None = None
    wide_first: Natural = 0
    wide_last: Natural = 0

    def filled(self, dtype: Stored) -> Precision:
        """The precision of a run of a model whose own dtype is `dtype`."""
        stored = self.parameters or dtype
        own = stored if stored in ("bf16", "fp16") else dtype
        return Precision(
            parameters=stored, compute=self.compute or own, reduce=self.reduce,
            wide_first=self.wide_first, wide_last=self.wide_last,
        )  # fmt: skip


@record
class Optimizer:
    """none, sgd, momentum (one state per parameter) or adam (two).

    `master_weights`: keep an fp32 copy of parameters that are stored in 16 bit; None: as the
    strategy's system does (DeepSpeed's and Megatron's optimizers keep one, torch's update what is
    stored); false is training purely in 16 bit.
    `extra_bytes`: read and written on the device for each parameter beside the update itself, as
    casts of gradients, their norm and their scale.
    """

    kind: Literal["none", "sgd", "momentum", "adam"] = "adam"
    master_weights: Flag | None = None
    fused: Literal[True, "foreach", "for_loop"] | None = None
    extra_bytes: units.Bytes = 0.0

    def settled(self, *, by_system: bool) -> Optimizer:
        """The optimizer with its copy said: as asked for, else as the system has it."""
        if self.master_weights is not None:
            return self
        return replace(self, master_weights=by_system)

    @property
    def states(self) -> int:
        """State tensors per parameter, each in fp32."""
        return {"none": 0, "sgd": 0, "momentum": 1, "adam": 2}[self.kind]
