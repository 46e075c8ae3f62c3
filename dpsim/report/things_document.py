"""What `dpsim show --json` prints: machines, devices, models and the rest as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from dpsim.compile.schedules import spell
from dpsim.core import jsonfile, plugins, yamlfile
from dpsim.core.files import read_text
from dpsim.core.places import data_folder
from dpsim.core.record import Refused, dump
from dpsim.machines.machine import device_names, load_device, load_machine, machine_names
from dpsim.models import Model
from dpsim.models.named import is_config, load_config, load_named, model_names
from dpsim.report import things
from dpsim.report.again import MOST
from dpsim.report.plugged import FOLDERS, about, default
from dpsim.report.schedules import MICRO_BATCHES, PACKAGE, RANKS

#: of a layer that is shown
_OF_LAYER = ("name", "parameters", "forward_flop", "backward_flop", "activations")


def document(thing: str, sequence_length: int | None) -> Any:
    """What `thing` is; quantities are texts with their units, as files have them, except in models:
    FLOP and counts of elements per sample.  Refused for unknown names."""
    thing = things.short_name(thing)
    lists: dict[str, Callable[[], Any]] = {
        "machines": lambda: [_brief(name) for name in machine_names()],
        "devices": lambda: [{"name": name, **_device(name)} for name in device_names()],
        "models": lambda: list(model_names()),
        "schedules": lambda: list(plugins.names(PACKAGE)),
        "scenarios": lambda: list(things.bundled()),
        "measuring-programs": lambda: sorted(
            map(str, data_folder("validation").glob("measure_*.py"))
        ),
        "doctor": lambda: dict(things.installation()),
        **{folder: partial(_plugins, folder) for folder in FOLDERS},
    }
    if thing in lists:
        return lists[thing]()
    if thing.endswith(".json") and is_config(Path(thing)):
        return _model(load_config(Path(thing), sequence_length))
    if thing.endswith(".json"):
        return jsonfile.loads(read_text(Path(thing), MOST))
    kinds: list[tuple[Collection[str], Callable[[], Any]]] = [
        (machine_names(), lambda: dump(load_machine(thing, Path()))),
        (model_names(), lambda: _model(load_named(thing, sequence_length))),
        (device_names(), lambda: _device(thing)),
        (plugins.names(PACKAGE), lambda: _schedule(thing)),
        *((plugins.names(one), partial(_plugin, one, thing)) for one in FOLDERS),
        (things.bundled(), lambda: yamlfile.load(things.bundled()[thing])[0]),
    ]
    if thing.endswith((".yaml", ".yml")):
        return dump(load_machine(thing, Path()))
    for known, made in kinds:
        if thing in known:
            return made()
    raise Refused(things.unknown_thing(thing, [*lists, *(n for known, _ in kinds for n in known)]))


def _brief(name: str) -> dict[str, Any]:
    machine = load_machine(name)
    return {
        "name": name,
        "device": machine.device.name,
        "gpus_per_node": machine.gpus_per_node,
        "description": machine.description,
    }


def _device(name: str) -> dict[str, Any]:
    made: dict[str, Any] = dump(load_device(name))
    return made


def _plugins(folder: str) -> list[dict[str, str]]:
    return [{"name": name, "about": about(cls)} for name, cls in plugins.usable(folder)]


def _plugin(folder: str, name: str) -> dict[str, Any]:
    cls = plugins.find(folder, name)
    keys = {one.name: default(one) for one in dataclasses.fields(cls)}
    return {"name": name, "about": about(cls), "in_a_scenario": FOLDERS[folder] % name,
            "keys": keys}  # fmt: skip


def _schedule(name: str) -> dict[str, Any]:
    schedule = plugins.find(PACKAGE, name)()
    lists = schedule.lists(RANKS, MICRO_BATCHES)
    return {
        "name": name,
        "ranks": RANKS,
        "micro_batches": MICRO_BATCHES,
        "orders": [spell(acts, schedule.chunks) for acts in lists],
    }


def _model(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "parameters": model.parameters,
        "sample": model.sample,
        "tokens": model.tokens,
        "dtype": model.dtype,
        "layers": [{key: getattr(layer, key) for key in _OF_LAYER} for layer in model.layers],
    }
