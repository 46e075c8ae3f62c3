"""Which device an imported machine has: the one that is named, or the preset's where it fits."""

from __future__ import annotations

from dpsim.core import unknown
from dpsim.core.record import Refused
from dpsim.machines.devices import Device
from dpsim.machines.machine import device_names, load_device, load_machine, machine_names
from dpsim.measurements.importing.ledger import Ledger
from dpsim.measurements.importing.pci_ids import DEVICES

#: AMD's devices by architecture: the LLVM AMDGPU backend guide's table of processors
_GCN = {
    "gfx908": ("mi100",),
    "gfx90a": ("mi210", "mi250x-gcd"),
    "gfx942": ("mi300x", "mi325x"),
    "gfx950": ("mi350x", "mi355x"),
}
#: GeForce since Turing: the driver offers no peer-to-peer access over PCIe (`pcie_tree`)
STAGED = ("rtx2080ti", "rtx3080", "rtx3090", "rtx3090ti", "rtx4090", "rtx5090", "titan-rtx")


_SOURCE = "pci-ids.ucw.cz"


def file_of(device: Device) -> str:
    """The name of the file that a device of a preset is from; "" where it isn't dpsim's."""
    return next((name for name in device_names() if load_device(name) == device), "")


def device_of(ledger: Ledger, name: str | None) -> str:
    """The device that is named, or the preset's where it has what the files state."""
    compute, gcn = ledger.first(lambda f: f.compute), ledger.first(lambda f: f.gcn)
    fitting = _fitting(compute[0] if compute else None, gcn[0] if gcn else None)
    choices = ", ".join(fitting) or "none that dpsim knows"
    said = gcn[0] if gcn else ""
    if compute:
        said = f"compute capability {compute[0] // 10}.{compute[0] % 10}"
    if name is not None:
        return _named(ledger, name, fitting, said)
    chip = ledger.first(lambda f: f.chip)
    if chip and (named := DEVICES.get(chip[0])) in fitting:
        ledger.note("device", named, "file", f"{chip[1]}: PCI id {chip[0]}, {_SOURCE}")
        return named
    if ledger.like is not None:
        own = file_of(ledger.like.device)
        if own in fitting:
            ledger.preset("device", own)
            return own
        if not own:
            raise Refused(f"--like: the device of {ledger.like.name} isn't one of dpsim's; name "
                          "one with --device")  # fmt: skip
        raise Refused(f"--like: {ledger.like.name} has {ledger.like.device.name}, and the files "
                      f"state {said or 'none'}; name one with --device: {choices}")  # fmt: skip
    which = f"one of those with {said}: {choices}" if said else "`dpsim show devices` lists them"
    raise Refused("the files don't say which GPU it is; name it with --device, or a machine that "
                  f"has it with --like; {which}")  # fmt: skip


def alike(gpus: int | None, chosen: str) -> str:
    """The machines for --like: those with that device, the ones with as many first; else those with
    as many devices."""
    known = {name: load_machine(name) for name in machine_names()}
    as_many = [name for name, machine in known.items() if machine.gpus_per_node == gpus]
    same = [n for n, machine in known.items() if machine.device.name == load_device(chosen).name]
    return ", ".join(sorted(same, key=lambda name: name not in as_many) or as_many or known)


def _named(ledger: Ledger, name: str, fitting: tuple[str, ...], said: str) -> str:
    """Device `name`, if it is one of the `fitting` ones, which have what is `said`."""
    if name not in device_names():
        raise Refused(
            f"--device: {unknown.sentence(name, device_names(), 'no device of that name')}"
        )
    if name not in fitting:
        raise Refused(f"--device: {name} hasn't {said}, which the files state; devices that "
                      f"have: {', '.join(fitting) or 'none that dpsim knows'}")  # fmt: skip
    ledger.note("device", name, "option", "--device")
    return name


def _fitting(compute: int | None, gcn: str | None) -> tuple[str, ...]:
    """The devices that have what the files state."""
    if gcn is not None:
        return _GCN.get(gcn, ())
    names = device_names()
    if compute is None:
        return names
    return tuple(n for n in names if load_device(n).compute_capability == compute)
