"""The Model of a recorded run.

Layers are made such that what the recording says is reproduced: a layer's forward lasts from the
previous layer's end to its own (so functions between layers count with the layer that follows
them, the loss with the last), and its backward from the previous gradient to its own.  Gradients
of one module that come one after the other within SPREAD of the backward (without durations: with
no FLOP between them) are ready together, when the last of them is; otherwise the module is split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple

from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.record import Refused
from dpsim.models import Buckets, Layer, Model, Recorded, Tensor
from dpsim.models.recording import Columns, Parameter, RecordedBucket, Recording

#: gradients of one module may be this share of the backward apart and still count as one layer's
SPREAD = 0.01


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
    calls = [found.modules[call[0]] for call in sorted(found.step.forward, key=itemgetter(2))]
    rank: dict[str, int] = {}
    here = -1
    for module in found.modules:
        here = calls.index(module) if module in calls else here
        rank[module] = here
    return rank


def _recorded(
    found: Recording, parts: list[Part], layers: tuple[Layer, ...], timed: bool
) -> Recorded:
    label = {
        parameter.name: f"{layer.name}.{tensor.name}"
        for part, layer in zip(parts, layers, strict=True)
        for parameter, tensor in zip(_members(found, part), layer.tensors, strict=True)
    }
    step = found.step

    def told(buckets: tuple[RecordedBucket, ...]) -> Buckets:
        return tuple((float(b.bytes), tuple(label[n] for n in b.parameters)) for b in buckets)

    return Recorded(
        device=found.device.name,
        batch=found.batch,
        timed=timed,
        step=step.end_s,
        plain_step=found.plain_step,
        after=step.end_s - max(step.ready_s.values()),
        between=found.between,
        first_buckets=told(found.first_buckets),
        buckets=told(found.steady_buckets),
        frozen_bytes=sum(p.bytes for p in found.parameters if not p.trainable),
    )
