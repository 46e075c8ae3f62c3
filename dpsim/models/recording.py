"""Recordings of real steps (`dpsim measure`): read and checked.

A recording says when each layer's forward ended and when each gradient was ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Annotated, Any, Literal

from dpsim.core import units
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.jsonfile import loads
from dpsim.core.record import Check, Flag, Natural, Refused, Text, build, record
from dpsim.models.precision import Dtype, Stored

SCHEMA, VERSION = "dpsim-ddp-record", 1
Amount = Annotated[float, units.Unit("1", high=1e30)]
Columns = tuple[Amount, Amount, Amount, Amount]


@record
class DeviceName:
    """What the run was on."""

    type: Literal["cpu", "cuda"]
    name: Text


@record
class Parameter:
    """One parameter tensor and the module that registers it first."""

    name: Text
    module: Text
    shape: tuple[Natural, ...]
    dtype: Text
    bytes: Natural
    trainable: Flag


@record
class RecordedBucket:
    """One bucket as the communication hook got it."""

    index: Natural
    bytes: Natural
    dtype: Stored
    parameters: tuple[Text, ...]


@record
class RecordedStep:
    """One step [s since its start]: forward (module, start, end), gradients, buckets, the rest."""

    forward: tuple[tuple[Natural, units.Seconds, units.Seconds], ...]
    backward_start_s: units.Seconds
    ready_s: dict[Text, units.Seconds]
    buckets_s: tuple[units.Seconds, ...]
    backward_end_s: units.Seconds
    optimizer_end_s: units.Seconds | None
    end_s: units.Seconds

    def __post_init__(self) -> None:
        for k, (_, start, end) in enumerate(self.forward):
            if not start <= end <= self.backward_start_s:
                raise Refused("is not in the order start, end, backward_start_s", ("forward", k))
        for name, time in self.ready_s.items():
            if not self.backward_start_s <= time <= self.end_s:
                raise Refused("is not between backward_start_s and end_s", ("ready_s", name))
        if not self.backward_start_s <= self.backward_end_s <= self.end_s:
            raise Refused("is not between backward_start_s and end_s", ("backward_end_s",))
        if self.optimizer_end_s is not None and self.optimizer_end_s > self.end_s:
            raise Refused("is after end_s", ("optimizer_end_s",))
        if not self.ready_s or not self.forward:
            raise Refused("no gradient was ever ready, or no module called", ())


@record
class RecordedWork:
    """The same marks on one more step, counted: FLOP, bytes moved, kernels, bytes kept."""

    columns: tuple[Text, ...]
    forward: tuple[tuple[Natural, Columns, Columns], ...]
    backward_start: Columns
    ready: dict[Text, Columns]

    def __post_init__(self) -> None:
        if self.columns != ("flop", "bytes", "kernels", "kept_bytes"):
            raise Refused("is not flop, bytes, kernels, kept_bytes", ("columns",))


@record
class Knobs:
    """DistributedDataParallel's arguments."""

    bucket_cap_mb: Amount | None
    find_unused_parameters: Flag
    static_graph: Flag
    gradient_as_bucket_view: Flag
    broadcast_buffers: Flag


@record
class OptimizerClass:
    """The optimizer's class in torch, and whether it has momentum."""

    class_: Text
    momentum: Flag


@record
class Recording:
    """A whole record, as `dpsim measure` writes it."""

    torch: Text
    device: DeviceName
    world_size: Annotated[int, Check(1, 1_048_576)]
    batch: Annotated[int, Check(1, 10**9)]
    compute_dtype: Dtype
    model: Text
    ddp: Knobs
    optimizer: OptimizerClass | None
    modules: tuple[Text, ...]
    parameters: tuple[Parameter, ...]
    buffers: tuple[tuple[Text, Natural], ...]
    first_buckets: tuple[RecordedBucket, ...]
    steady_buckets: tuple[RecordedBucket, ...]
    plain_steps_s: tuple[units.Seconds, ...]
    steps: tuple[RecordedStep, ...]
    work: RecordedWork | None
    dpsim_version: Text = ""

    def __post_init__(self) -> None:
        if not self.steps or not self.plain_steps_s:
            raise ValueError("steps: there is no step")
        for k, parameter in enumerate(self.parameters):
            _check_parameter(parameter, self.modules, k)
        names = [p.name for p in self.parameters]
        if len(set(names)) != len(names) or len(set(self.modules)) != len(self.modules):
            raise ValueError("parameters: two parameters or modules have one name")
        for step, entry in enumerate(self.steps):
            self._check_step(entry.forward, entry.ready_s, ("steps", step))
        if self.work is not None:
            self._check_step(self.work.forward, self.work.ready, ("work",))
        self._check_buckets("first_buckets", self.first_buckets)
        self._check_buckets("steady_buckets", self.steady_buckets)

    @cached_property
    def trainable(self) -> dict[str, Parameter]:
        """The parameters that have gradients, by name, in registration order."""
        return {p.name: p for p in self.parameters if p.trainable}

    @cached_property
    def place(self) -> dict[str, int]:
        """The number of each trainable parameter in registration order."""
        return {name: index for index, name in enumerate(self.trainable)}

    @cached_property
    def step(self) -> RecordedStep:
        """The step of median duration (the lower one of an even number)."""
        return sorted(self.steps, key=lambda step: step.end_s)[(len(self.steps) - 1) // 2]

    @property
    def between(self) -> float:
        """What lies between the optimizer of that step and the next forward [s]."""
        step = self.step
        done = step.optimizer_end_s
        return step.end_s - (max(step.ready_s.values()) if done is None else done)

    @property
    def plain_step(self) -> float:
        """The median step without hooks on layers and gradients [s]."""
        return sorted(self.plain_steps_s)[(len(self.plain_steps_s) - 1) // 2]

    def _check_step(
        self, forward: Sequence[Any], ready: dict[str, Any], path: tuple[str | int, ...]
    ) -> None:
        if any(module >= len(self.modules) for module, *_ in forward):
            raise Refused(f"there are {len(self.modules)} modules", (*path, "forward"))
        for name in ready:
            if name not in self.trainable:
                raise Refused(f"{name!r} is no trainable parameter", (*path, "ready"))
        for name in set(self.steps[0].ready_s) ^ set(ready):
            raise Refused(f"{name!r} is not ready in every step", (*path, "ready"))

    def _check_buckets(self, key: str, buckets: tuple[RecordedBucket, ...]) -> None:
        seen: set[str] = set()
        for k, bucket in enumerate(buckets):
            for name in bucket.parameters:
                if name not in self.trainable or name in seen:
                    raise Refused(f"{name!r} is no parameter, or there twice", (key, k))
                seen.add(name)
            total = sum(self.trainable[name].bytes for name in bucket.parameters)
            if total != bucket.bytes:
                raise Refused(
                    f"its parameters have {total:,} bytes, not {bucket.bytes:,}", (key, k)
                )
        for name in self.trainable:
            if name not in seen:
                raise Refused(f"parameter {name!r} is in no bucket", (key,))


def _check_parameter(parameter: Parameter, modules: tuple[str, ...], k: int) -> None:
    if parameter.module not in modules:
        raise Refused(f"there is no module {parameter.module!r}", ("parameters", k))
    if not parameter.trainable:
        return
    if parameter.dtype not in DTYPE_BYTES:
        raise Refused(f"unknown dtype {parameter.dtype!r}", ("parameters", k))
    size = prod(parameter.shape) * DTYPE_BYTES[parameter.dtype]
    if size != parameter.bytes:
        raise Refused(
            f"{parameter.name} has {parameter.bytes:,} bytes, and its shape {size:,}",
            ("parameters", k),
        )


@lru_cache(maxsize=4)  # every point of a sweep reads the same record
def parse(text: str) -> Recording:
    """The record written in `text`.  Refused, naming the place, for anything else."""
    data = loads(text)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise Refused(f"is no record of dpsim measure (schema {SCHEMA!r})")
    version = data.pop("schema_version", None)
    if version != VERSION or isinstance(version, bool):
        raise Refused(f"has schema_version {str(version)[:20]}; this dpsim reads {VERSION}")
    del data["schema"]
    if isinstance(data.get("optimizer"), dict) and "class" in data["optimizer"]:
        data["optimizer"]["class_"] = data["optimizer"].pop("class")
    return build(Recording, data)


#: what CUDA calls a device (torch.cuda.get_device_name), where machine files call it otherwise
_SAME = {
    "H100 80GB HBM3": "H100-SXM5-80GB",
    "H100 PCIe": "H100-PCIe-80GB",
    "H200": "H200-SXM5-141GB",
    "A100 80GB PCIe": "A100-PCIE-80GB",
}


def same_device(recorded: str, device: str) -> bool:
    """Whether CUDA's name of the recorded device is that of a machine's `device`."""
    name = recorded.removeprefix("NVIDIA ")
    return device in (name, _SAME.get(name))
