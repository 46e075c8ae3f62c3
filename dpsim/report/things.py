"""Things to show: machines, models, scenarios, and how this installation is."""

from __future__ import annotations

import itertools
import os
import platform
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim._version import __version__
from dpsim.core import plugins, unknown
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.places import data_folder
from dpsim.core.record import Refused
from dpsim.core.units import show
from dpsim.machines.devices import Link
from dpsim.machines.exchange import machine_graph, write_graph
from dpsim.machines.machine import Machine, device_names, load_device, load_machine, machine_names
from dpsim.models import Layer, Model
from dpsim.models.named import is_config, load_config, load_named, model_names
from dpsim.report.again import show_answer
from dpsim.report.plugged import (
    FOLDERS,
    device_rows,
    show_device,
    show_devices,
    show_folder,
    show_plugin,
)
from dpsim.report.schedules import PACKAGE, show_schedule, show_schedules
from dpsim.report.table import put, say
from dpsim.report.text import clean

if TYPE_CHECKING:
    from rich.console import Console

LISTS = ("machines", "devices", "models", *FOLDERS, "schedules", "scenarios",
         "measuring-programs", "doctor")  # fmt: skip
#: what a machine is drawn to
PICTURES = (".png", ".svg", ".pdf")
#: what its graph is written to
GRAPHS = (".graphml", ".json")
WHAT = ("what", "value")
DEPENDENCIES = ("simpy", "numpy", "networkx", "pandas", "matplotlib", "pydantic", "pyyaml", "typer",
                "rich", "jinja2", "defusedxml")  # fmt: skip


def show_thing(
    thing: str, console: Console, *, nodes: int, sequence_length: int | None, out: Path | None
) -> None:
    """Print what `thing` is; a machine is also drawn to `out`, if that is given.  Refused for
    unknown names, and where there is nothing to draw."""
    thing = short_name(thing)
    if thing in machine_names() or thing.endswith((".yaml", ".yml")):
        _machine(thing, console, nodes, out)
        return
    printer = _printer(thing, console, sequence_length)
    if out is not None:
        raise Refused(f"--out {out}: only a machine is drawn; {clean(thing)[:60]} is printed")
    printer()


def _printer(thing: str, console: Console, sequence_length: int | None) -> Callable[[], None]:
    """What prints `thing`, which is no machine."""
    lists: dict[str, Callable[[Console], None]] = {
        "devices": show_devices,
        "machines": _machines,
        "models": _models,
        "schedules": show_schedules,
        "scenarios": _scenarios,
        "measuring-programs": _measuring_programs,
        "doctor": _doctor,
        **{folder: partial(show_folder, folder) for folder in FOLDERS},
    }
    if thing in lists:
        return partial(lists[thing], console)
    if thing.endswith(".json"):
        return partial(_json, Path(thing), console, sequence_length)
    kinds: list[tuple[Collection[str], Callable[[], None]]] = [
        (model_names(), lambda: _model(load_named(thing, sequence_length), console)),
        (device_names(), partial(show_device, thing, console)),
        (plugins.names(PACKAGE), partial(show_schedule, thing, console)),
        *((plugins.names(one), partial(show_plugin, one, thing, console)) for one in FOLDERS),
        (bundled(), partial(_scenario, thing, console)),
    ]
    for known, printer in kinds:
        if thing in known:
            return printer
    every = itertools.chain(lists, machine_names(), *(known for known, _ in kinds))
    raise Refused(unknown_thing(thing, list(every)))


def short_name(thing: str) -> str:
    """The name of the device that `thing` is in full ("H100-SXM5-80GB"); otherwise `thing` itself.
    Refused where nothing is said."""
    if not thing:
        raise Refused(f"nothing is said to show; {', '.join(LISTS)}, or the name of one of them")
    if thing in (*LISTS, *device_names(), *machine_names()):
        return thing
    full = {load_device(name).name.lower(): name for name in device_names()}
    return full.get(thing.lower(), thing)


#: what lists are called elsewhere
_CALLED = {
    "gpus": "devices", "accelerators": "devices", "clusters": "machines", "nodes": "machines",
    "networks": "models", "examples": "scenarios", "version": "doctor", "versions": "doctor",
}  # fmt: skip


def unknown_thing(thing: str, known: Sequence[str]) -> str:
    """The sentence for a `thing` that is none of those that are `known`."""
    called = _CALLED.get(thing.lower())
    if called is not None:
        return f"nothing to show is called {clean(thing)[:60]!r}; it is: dpsim show {called}"
    hint = unknown.did_you_mean(thing, known) or f"see dpsim show {', '.join(LISTS)}"
    return unknown.not_modelled(thing) or f"nothing to show is called {clean(thing)[:60]!r}; {hint}"


def _print(console: Console, *lines: str, style: str = "") -> None:
    say(console, map(clean, lines), style)


def _words(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of words."""
    put(console, (headers, rows), headers)


def _machines(console: Console) -> None:
    rows = []
    for name in machine_names():
        machine = load_machine(name)
        rows.append([name, f"{machine.gpus_per_node}", machine.device.name, machine.description])
    headers = ("machine", "devices per node", "device", "description")
    put(console, (headers, rows), ("machine", "device", "description"))
    _print(console, "dpsim show MACHINE prints one and draws it.")


def _models(console: Console) -> None:
    kinds = {
        name: "name" if name in plugins.names("models") else "huggingface" for name in model_names()
    }
    rows = [[name, f"model: {{{kind}: {name}}}"] for name, kind in kinds.items()]
    _words(console, ("model", "in a scenario"), rows)
    known = "GPT-2, BERT, Llama, Mistral, Qwen, Phi-3, Gemma or OPT"
    _print(console, f"A config.json of {known} works too: dpsim show config.json.")


def _scenarios(console: Console) -> None:
    rows = []
    for name, path in bundled().items():
        text = path.read_text(encoding="utf-8").lstrip()
        comment = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
        about = " ".join(line.lstrip("# ") for line in comment)
        about = about or text.split("\n", 1)[0].partition("title:")[2].strip()
        about = re.split(r"(?<=[.?]) |(?<=.{14}): ", about)[0]
        rows.append([name, clean(about)])
    _words(console, ("scenario", "about"), rows)
    _print(console, "dpsim run SCENARIO predicts one; dpsim compare FOLDER compares those of one.")


def bundled() -> dict[str, Path]:
    """The files of the bundled scenarios, by name."""
    folder = data_folder("scenarios")
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.yaml"))
        if path.parent.name != "common"  # what the candidates of a folder share
    }


def _scenario(name: str, console: Console) -> None:
    """The file, to copy and change."""
    say(console, bundled()[name].read_text(encoding="utf-8").splitlines())


def _measuring_programs(console: Console) -> None:
    """Paths, one per line, so that a shell can use them: in the package, or in a checkout."""
    for path in sorted(data_folder("validation").glob("measure_*.py")):
        console.print(str(path), markup=False, highlight=False, soft_wrap=True)
    helpers = "_measure.py and _networks.py beside them"
    _print(console, f"They need torch, numpy, and {helpers}: copy the folder.  --help says more.")


# -- a machine ------------------------------------------------------------------------------------


def _machine(name: str, console: Console, nodes: int, out: Path | None) -> None:
    machine = load_machine(name, Path())
    count = _drawn(machine, nodes)
    if out is not None:
        _check_place(out)
    _print(console, machine.name, style="bold")
    if machine.description:
        _print(console, machine.description)
    _words(console, WHAT, _machine_rows(machine))
    headers = ("link", "number", "bandwidth one way", "latency")
    put(console, (headers, _links(machine, count)), ("link",))
    if out is not None:
        write_machine(name, nodes, out)
    if machine.sources:
        _print(console, "Sources:", *(f"- {key}: {text}" for key, text in machine.sources.items()))
    if out is None:
        _print(console, f"-o {machine.name}.png draws it, -o {machine.name}.graphml is its graph.")
    else:
        _print(console, f"{count} node{'s' * (count > 1)} drawn to {out}")


def write_machine(name: str, nodes: int, out: Path) -> None:
    """Draw the machine called `name`, or write its graph, to `out`."""
    from dpsim.report.machine_picture import draw_machine

    machine = load_machine(name, Path())
    _check_place(out)
    if out.suffix in GRAPHS:
        write_graph(machine_graph(name, _drawn(machine, nodes)), out)
    else:
        draw_machine(machine, _drawn(machine, nodes), out)


def _drawn(machine: Machine, nodes: int) -> int:
    """How many nodes are drawn."""
    return nodes if machine.network is not None and machine.nics_per_node else 1


def _check_place(out: Path) -> None:
    if out.is_dir():
        raise Refused(f"--out {out}: is a folder, and a file is needed")
    if out.suffix not in (*PICTURES, *GRAPHS):
        ends = ", ".join((*PICTURES, *GRAPHS))
        raise Refused(f"--out {out}: a name ending in {ends} is needed")


def _machine_rows(machine: Machine) -> list[list[str]]:
    network = machine.network
    between = plugins.name_of(network) if network is not None else "none, a single node"
    return [
        *device_rows(machine.device),
        ["devices per node", str(machine.gpus_per_node)],
        ["NICs per node", str(machine.nics_per_node)],
        ["inside a node", plugins.name_of(machine.node)],
        ["between nodes", between],
    ]


def _links(machine: Machine, nodes: int) -> list[list[str]]:
    """Links of `nodes` nodes by kind, bandwidth and latency, both directions counted once each."""
    graph = machine.topology(nodes).graph
    counts: dict[tuple[str, float, float], int] = {}
    for _, _, data in graph.edges(data=True):
        link: Link = data["link"]
        key = (link.kind, link.bandwidth, link.latency)
        counts[key] = counts.get(key, 0) + 1
    return [
        [clean(kind).replace("_", " "), str(count), show(bandwidth, "B/s"), show(latency, "s")]
        for (kind, bandwidth, latency), count in sorted(counts.items())
    ]


# -- a model --------------------------------------------------------------------------------------


def _json(path: Path, console: Console, sequence_length: int | None) -> None:
    """The model of a configuration, or an answer of dpsim."""
    if is_config(path):
        _model(load_config(path, sequence_length), console)
    else:
        show_answer(path, console)


def _model(model: Model, console: Console) -> None:
    forward = sum(layer.forward_flop for layer in model.layers)
    backward = sum(layer.backward_flop for layer in model.layers)
    kept = sum(layer.activations for layer in model.layers)
    sample = model.sample + (f" of {model.tokens:,} tokens" if model.tokens > 1 else "")
    rows = [
        ["parameters", f"{model.parameters:,} ({show(4.0 * model.parameters, 'B')} in fp32)"],
        ["one sample", sample],
        ["forward", f"{show(forward, 'FLOP')} per {model.sample}"],
        ["backward", f"{show(backward, 'FLOP')} per {model.sample}"],
        ["activations kept", f"{show(kept * DTYPE_BYTES['bf16'], 'B')} in bf16 per {model.sample}"],
        ["layers", f"{len(model.layers):,}"],
        ["parameters' dtype", model.dtype],
    ]
    _print(console, model.name, style="bold")
    _words(console, WHAT, rows)
    headers = ("unit", "parameters", "forward FLOP", "backward FLOP", "activations")
    put(console, (headers, units(model)), ("unit",))


def units(model: Model) -> list[list[str]]:
    """Per unit: parameters, FLOP and activations; equal neighbours share a row."""
    grouped = itertools.groupby(model.layers, key=_unit)
    whole = [(name, _sums(list(members))) for name, members in grouped]
    rows = []
    for sums, same in itertools.groupby(whole, key=lambda item: item[1]):
        found = [name for name, _ in same]
        label = found[0] if len(found) == 1 else f"{found[0]} … {found[-1]} ({len(found)} times)"
        flop = [show(value, "FLOP") for value in sums[1:3]]
        rows.append([clean(label), f"{sums[0]:,.0f}", *flop, f"{sums[3]:,.0f}"])
    return rows


def _unit(layer: Layer) -> str:
    if layer.unit:
        return layer.unit
    head, *rest = layer.name.split(".")
    return ".".join([head, *rest[:1]]) if rest and rest[0].isdigit() else head


def _sums(layers: list[Layer]) -> tuple[float, ...]:
    keys = ("parameters", "forward_flop", "backward_flop", "activations")
    return tuple(float(sum(getattr(layer, key) for layer in layers)) for key in keys)


# -- this installation ----------------------------------------------------------------------------


def _doctor(console: Console) -> None:
    _words(console, WHAT, installation())


def installation() -> list[list[str]]:
    """This machine and the packages that dpsim finds on it."""

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "MISSING"

    cores: Any = getattr(os, "sched_getaffinity", None)
    usable = len(cores(0)) if cores else os.cpu_count() or 1
    return [
        ["dpsim", __version__],
        ["python", platform.python_version()],
        ["system", f"{platform.system()} {platform.machine()}"],
        ["cores", str(usable)],
        *([name, installed(name)] for name in DEPENDENCIES),
        ["torch (optional)", installed("torch") if find_spec("torch") else "not there"],
    ]
