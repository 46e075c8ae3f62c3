"""Plug-ins and devices as tables: which there are, and what each is."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from dpsim.core import plugins
from dpsim.core.units import show
from dpsim.machines.devices import Device
from dpsim.machines.machine import device_names, load_device, machines_by_device
from dpsim.report.table import put, say
from dpsim.report.text import clean

if TYPE_CHECKING:
    from rich.console import Console

#: folders of plug-ins that are shown, and the key of a scenario that names one
FOLDERS = {
    "strategies": "strategy: {kind: %s}",
    "backends": "collective: {backend: %s}",
    "compression": "strategy: {comm_hook: %s}",
}
#: where a device is that no machine has
_NOWHERE = "none: cluster.device puts it into one"


def show_folder(folder: str, console: Console) -> None:
    """Print a table of the plug-ins of `folder`."""
    rows = [[name, FOLDERS[folder] % name, about(cls)] for name, cls in plugins.usable(folder)]
    put(console, (headers := (folder, "in a scenario", "what it is"), rows), headers)
    say(console, ["dpsim show NAME prints the keys of one; `docs/scenario.md` says what each is."])


def show_plugin(folder: str, name: str, console: Console) -> None:
    """Print what plug-in `name` of `folder` is, and its keys with their defaults."""
    cls = plugins.find(folder, name)
    say(console, [f"{name}: {about(cls)}"], "bold")
    say(console, [FOLDERS[folder] % name])
    rows = [[one.name, default(one)] for one in dataclasses.fields(cls)]
    if rows:
        put(console, (headers := ("key", "default"), rows), headers)


def about(cls: type[Any]) -> str:
    """The first sentence of the module's docstring."""
    first = (sys.modules[cls.__module__].__doc__ or "").split("\n\n")[0]
    return clean(first).partition(". ")[0].rstrip(".").replace("``", "")


def default(one: dataclasses.Field[Any]) -> str:
    """The default of a key, in words."""
    if one.default is dataclasses.MISSING:
        return "has to be given" if one.default_factory is dataclasses.MISSING else "empty"
    value = getattr(one.default, "default", one.default)  # as pydantic's Field keeps it
    if isinstance(value, bool) or value is None:
        return "left out" if value is None else str(value).lower()
    return clean(value) or "empty"


# -- devices --------------------------------------------------------------------------------------


def show_devices(console: Console) -> None:
    """Print a table of all devices."""
    rows, having = [], machines_by_device()
    for name in device_names():
        device = load_device(name)
        peak = device.peak.get("bf16") or device.peak.get("fp16") or device.peak["fp32"]
        there = ", ".join(having.get(device.name, ())) or _NOWHERE
        rows.append([name, show(device.memory, "B"), show(peak, "FLOP/s"), there])
    headers = ("device", "memory", "dense peak", "machines with it")
    put(console, (headers, rows), ("device", "machines with it"))
    say(console, ["Peak in bf16, else fp16, else fp32.  dpsim show DEVICE prints all of one."])


def show_device(name: str, console: Console) -> None:
    """Print the numbers of device `name`."""
    device = load_device(name)
    say(console, [f"{name}, a device: {device.name}"], "bold")
    having = ", ".join(machines_by_device().get(device.name, ())) or _NOWHERE
    rows = [*device_rows(device), ["machines with it", having]]
    put(console, (headers := ("what", "value"), rows), headers)


def device_rows(device: Device) -> list[list[str]]:
    """What a device does, in words."""
    peak = ", ".join(f"{dtype} {show(value, 'FLOP/s')}" for dtype, value in device.peak.items())
    memory = f"{show(device.memory, 'B')}, {show(device.memory_bandwidth, 'B/s')}"
    least, room, most = (show(size, "B") for size in device.room)
    known = f"; not told, {least} to {most}"
    if device.usable:  # what is sold as 141 GB may be 139.8 GiB, which are more
        known = f" ({device.usable / 2**30:.1f} GiB, as the device says of itself)"
    return [
        ["device", f"{device.name}, {memory}"],
        ["memory for programs", f"{room}{known}"],
        ["peak, dense", peak],
        ["kernel launch", show(device.launch_overhead, "s")],
    ]
