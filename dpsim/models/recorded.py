"""Records of real steps (`dpsim measure`): read, checked, and made into a Model.

A record says when each layer's forward ended and when each gradient was ready.  Layers are made
such that both are reproduced: a layer's forward lasts from the previous layer's end to its own (so
functions between layers count with the layer that follows them, the loss with the last), and its
backward from the previous gradient to its own.  Gradients of one module that come one after the
other within SPREAD of the backward (without durations: with no FLOP between them) are ready
together, when the last of them is; otherwise the module is split.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from dpsim.core.record import Check, Flag, Natural, Refused, Text, build, record
from dpsim.core.units import Seconds, Unit
from dpsim.machines.devices import DTYPE_BYTES
from dpsim.models import Buckets, Layer, Model, Recorded, Tensor
from dpsim.models.precision import Dtype, Stored

SCHEMA, VERSION = "dpsim-ddp-record", 1
#: gradients of one module may be this share of the backward apart and still count as one layer's
SPREAD = 0.01
Amount = Annotated[float, Unit("1", high=1e30)]
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
class Bucket:
    """One bucket as the communication hook got it."""

    index: Natural
    bytes: Natural
    dtype: Stored
    parameters: tuple[Text, ...]


@record
class Step:
    """One step [s since its start]: forward (module, start, end), gradients, buckets, the rest."""

    forward: tuple[tuple[Natural, Seconds, Seconds], ...]
    backward_start_s: Seconds
    ready_s: dict[Text, Seconds]
    buckets_s: tuple[Seconds, ...]
    backward_end_s: Seconds
    optimizer_end_s: Seconds | None
    end_s: Seconds

    def __post_init__(self) -> None:
        for k, (_, start, end) in enumerate(self.forward):
            if not start <= end <= self.backward_start_s:
                raise Refused("is not in the order start, end, backward_start_s", ("forward", k))
        for name, time in self.ready_s.items():
            if not self.backward_start_s <= time <= self.end_s:
                raise Refused("is not between backward_start_s and end_s", ("ready_s", name))
        if not self.backward_start_s <= self.backward_end_s <= self.end_s:
            raise Refused("is not between backward_start_s and end_s", ("backward_end_s",))
        if not self.ready_s or not self.forward:
            raise Refused("no gradient was ever ready, or no module called", ())


@record
class Work:
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
    first_buckets: tuple[Bucket, ...]
    steady_buckets: tuple[Bucket, ...]
    plain_steps_s: tuple[Seconds, ...]
    steps: tuple[Step, ...]
    work: Work | None
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
    def step(self) -> Step:
        """The step of median duration (the lower one of an even number)."""
        return sorted(self.steps, key=lambda step: step.end_s)[(len(self.steps) - 1) // 2]

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

    def _check_buckets(self, key: str, buckets: tuple[Bucket, ...]) -> None:
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
    try:
        data = json.loads(text, parse_constant=_no_number, object_pairs_hook=_no_repetition)
    except Refused:
        raise
    except (ValueError, RecursionError):
        raise Refused("is no complete JSON") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise Refused(f"is no record of dpsim measure (schema {SCHEMA!r})")
    version = data.pop("schema_version", None)
    if version != VERSION or isinstance(version, bool):
        raise Refused(f"has schema_version {str(version)[:20]}; this dpsim reads {VERSION}")
    del data["schema"]
    if isinstance(data.get("optimizer"), dict) and "class" in data["optimizer"]:
        data["optimizer"]["class_"] = data["optimizer"].pop("class")
    return build(Recording, data)


def _no_number(word: str) -> NoReturn:
    raise Refused(f"holds {word}, which is no number")


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused("gives a key twice")
    return found


# -- layers -----------------------------------------------------------------------------------


class Part(NamedTuple):
    """Tensors of one module whose gradients count as ready together, in order of arrival."""

    module: str
    names: tuple[str, ...]


def model_of(found: Recording, *, timed: bool, name: str) -> Model:
    """The Model of a record: with its durations, or (not `timed`) with its counted work only.

    Raises Refused where there is no counted work to derive durations from.
    """
    if not timed and found.work is None:
        raise Refused("the record has no FLOP to derive durations from; say times: recorded")
    arrived = _parts(found, timed)
    parts = _registered(found, arrived)
    figures = _figures(found, arrived, timed)
    layers = tuple(_layer(found, part, parts, figures) for part in parts)
    place = {part: index for index, part in enumerate(parts)}
    late = tuple(place[part] for part in arrived)
    early = tuple(sorted(set(range(len(parts))) - set(late)))
    tensors = tuple(found.place[name] for part in arrived for name in part.names)
    unused = tuple(sorted(set(found.place.values()) - set(tensors)))
    ahead = _forward_rank(found)
    return Model(
        name=name,
        layers=layers,
        forward_order=tuple(sorted(range(len(parts)), key=lambda i: (ahead[parts[i].module], i))),
        dtype=_main_dtype(found),
        buffers=tuple((dtype, count) for dtype, count in found.buffers),
        backward=early + late,
        arrival=unused + tensors,
        recorded=_recorded(found, parts, layers, timed),
    )


def _parts(found: Recording, timed: bool) -> list[Part]:
    """The gradients in order of arrival, those of one module together as far as they may be."""
    step, parameters = found.step, found.trainable
    names = sorted(step.ready_s, key=lambda name: step.ready_s[name])
    near = _near_in_time(found) if timed else _near_in_work(found)
    parts: list[list[str]] = []
    for name in names:
        last = parts[-1] if parts else []
        if last and _kind(parameters[last[0]]) == _kind(parameters[name]) and near(last[0], name):
            last.append(name)
        else:
            parts.append([name])
    made = []
    for names in parts:
        # layers stand in registration order, so a layer's tensors must follow one another there
        places = [found.place[name] for name in names]
        whole = max(places) - min(places) == len(places) - 1
        made += [names] if whole else [[name] for name in names]
    return [Part(parameters[names[0]].module, tuple(names)) for names in made]


def _near_in_time(found: Recording) -> Callable[[str, str], bool]:
    ready = found.step.ready_s
    spread = SPREAD * (max(ready.values()) - found.step.backward_start_s)
    return lambda first, then: ready[then] - ready[first] <= spread


def _near_in_work(found: Recording) -> Callable[[str, str], bool]:
    """Whether no FLOP was done between two gradients."""
    assert found.work is not None
    ready = found.work.ready
    return lambda first, then: ready[then][0] == ready[first][0]


def _kind(parameter: Parameter) -> tuple[str, str]:
    return parameter.module, parameter.dtype


def _registered(found: Recording, arrived: list[Part]) -> list[Part]:
    """All parts in registration order, with those that have no gradient."""
    place = found.place
    module_place = {module: index for index, module in enumerate(found.modules)}
    used = {name for part in arrived for name in part.names}
    unused = [Part(p.module, (name,)) for name, p in found.trainable.items() if name not in used]
    held = {part.module for part in (*arrived, *unused)}
    empty = [Part(module, ()) for module in found.modules if module not in held]
    return sorted(
        [*arrived, *unused, *empty],
        key=lambda part: (
            module_place[part.module],
            min((place[n] for n in part.names), default=0),
        ),
    )


class Figures(NamedTuple):
    """Per module's forward and per part's backward: seconds (None where not timed), and work."""

    forward: dict[str, float] | None
    backward: dict[Part, float] | None
    forward_work: dict[str, Columns]
    backward_work: dict[Part, Columns]


def _figures(found: Recording, arrived: list[Part], timed: bool) -> Figures:
    step, work = found.step, found.work
    calls = [(found.modules[module], end) for module, _, end in step.forward]
    forward = _shares(calls, 0.0, step.backward_start_s)
    ends = [(part, max(step.ready_s[name] for name in part.names)) for part in arrived]
    backward = _shares(ends, step.backward_start_s, ends[-1][1])
    if work is None:
        return Figures(forward, backward, {}, {})
    modules: list[dict[str, float]] = []
    parts: list[dict[Part, float]] = []
    for column in range(4):
        calls = [(found.modules[module], end[column]) for module, _, end in work.forward]
        modules.append(_shares(calls, 0.0, work.backward_start[column]))
        marks = [(part, max(work.ready[name][column] for name in part.names)) for part in arrived]
        last = max(mark for _, mark in marks)
        parts.append(_shares(marks, work.backward_start[column], last))
    return Figures(
        forward if timed else None,
        backward if timed else None,
        {key: _column(modules, key) for key in modules[0]},
        {key: _column(parts, key) for key in parts[0]},
    )


def _column(columns: Sequence[dict[Any, float]], key: Any) -> Columns:
    flop, moved, kernels, kept = (column[key] for column in columns)
    return flop, moved, kernels, kept


def _shares(marks: Sequence[tuple[Any, float]], start: float, end: float) -> dict[Any, float]:
    """What lies between each mark and the one before, summed by key; the last has the rest."""
    found: dict[Any, float] = {}
    before = start
    ordered = sorted(marks, key=lambda mark: mark[1])
    for key, mark in ordered:
        here = min(max(mark, before), end)
        found[key] = found.get(key, 0.0) + (here - before)
        before = here
    if ordered:
        found[ordered[-1][0]] += end - before
    return found


def _layer(found: Recording, part: Part, parts: list[Part], figures: Figures) -> Layer:
    """One layer, per sample; a module's forward counts with its first part."""
    first = next(other for other in parts if other.module == part.module) == part
    none = (0.0, 0.0, 0.0, 0.0)
    ahead = figures.forward_work.get(part.module, none) if first else none
    back = figures.backward_work.get(part, none)
    parameters = _members(found, part)
    dtype = parameters[0].dtype if parameters else None
    own = sum(prod(p.shape) for p in parameters)
    width = DTYPE_BYTES[found.compute_dtype]
    alone = first and sum(other.module == part.module for other in parts) == 1
    title = part.module or "(root)"
    forward = backward = None
    if figures.forward is not None and figures.backward is not None:
        forward = figures.forward.get(part.module, 0.0) / found.batch if first else 0.0
        backward = figures.backward.get(part, 0.0) / found.batch
    return Layer(
        name=title if alone else f"{title} [{', '.join(_short(p.name) for p in parameters)}]",
        tensors=tuple(Tensor(_short(p.name), p.shape) for p in parameters),
        forward_flop=ahead[0] / found.batch,
        backward_flop=back[0] / found.batch,
        forward_bytes=max(ahead[1] / width - own, 0.0) / found.batch,
        backward_bytes=max(back[1] / width - 2 * own, 0.0) / found.batch,
        kernels=int(ahead[2]),
        activations=ahead[3] / width / found.batch,
        unit=_unit(part.module),
        dtype=dtype,
        forward=forward,
        backward=backward,
    )


def _members(found: Recording, part: Part) -> list[Parameter]:
    """The tensors of `part` in registration order."""
    return [found.trainable[name] for name in sorted(part.names, key=found.place.__getitem__)]


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _unit(module: str) -> str:
    """The repeated block a module is in: "layers.3" for "layers.3.attention.query"."""
    block = re.match(r"(.*?\.\d+)\.", f"{module}.")
    return block[1] if block else ""


def _main_dtype(found: Recording) -> str:
    sizes: dict[str, int] = {}
    for parameter in found.trainable.values():
        sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.bytes
    return max(sizes, key=lambda dtype: sizes[dtype])


def _forward_rank(found: Recording) -> dict[str, int]:
    """Modules by the end of their first call; one that is never called follows its predecessor."""
    calls = [found.modules[module] for module, _, _ in sorted(found.step.forward, key=_end)]
    rank: dict[str, int] = {}
    here = -1
    for module in found.modules:
        here = calls.index(module) if module in calls else here
        rank[module] = here
    return rank


def _end(call: tuple[int, float, float]) -> float:
    return call[2]


def _recorded(
    found: Recording, parts: list[Part], layers: tuple[Layer, ...], timed: bool
) -> Recorded:
    label = {
        parameter.name: f"{layer.name}.{tensor.name}"
        for part, layer in zip(parts, layers, strict=True)
        for parameter, tensor in zip(_members(found, part), layer.tensors, strict=True)
    }
    step = found.step

    def told(buckets: tuple[Bucket, ...]) -> Buckets:
        return tuple((float(b.bytes), tuple(label[n] for n in b.parameters)) for b in buckets)

    return Recorded(
        device=found.device.name,
        batch=found.batch,
        timed=timed,
        step=step.end_s,
        plain_step=found.plain_step,
        after=step.end_s - max(step.ready_s.values()),
        first_buckets=told(found.first_buckets),
        buckets=told(found.steady_buckets),
        frozen_bytes=sum(p.bytes for p in found.parameters if not p.trainable),
    )


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
