"""Write a record and the scenario that plays it; neither is ever there half-written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpsim._version import __version__
from dpsim.core import yamlfile
from dpsim.core.outputs import check_file, marked, write_files
from dpsim.core.record import Refused
from dpsim.core.units import show
from dpsim.machines.machine import load_machine
from dpsim.models.recording import Recording, parse

#: torch's optimizers by the states they keep; others have none of these names
_OPTIMIZERS = {
    **dict.fromkeys(("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "FusedAdam"), "adam"),
    **dict.fromkeys(("RMSprop", "Adagrad", "Lion"), "momentum"),
}


def scenario_file(out: Path) -> Path:
    """The scenario beside record `out`."""
    return out.with_suffix(".yaml")


def check(out: Path, machine: str | None = None) -> None:
    """Refuse, before anything runs, what could not be written later, or a `machine` that is not
    known."""
    if machine is not None:
        load_machine(machine, out.parent)
    if out.suffix != ".json":
        raise Refused(f"-o {out}: a record's name ends in .json")
    if not out.parent.is_dir():
        raise Refused(f"-o {out}: there is no folder {str(out.parent)!r}")
    for place in (out, scenario_file(out)):
        check_file(place, "-o")


def write(document: dict[str, Any], out: Path, machine: str | None) -> Recording:
    """Check `document`, then write it to `out` and its scenario beside it."""
    text = json.dumps({"dpsim_version": __version__, **document}, indent=1, allow_nan=False)
    found = parse(text)
    beside = scenario(found, out.name, machine)
    write_files({out: f"{text}\n".encode(), scenario_file(out): beside.encode()}, "-o")
    return found


def said(found: Recording, out: Path, machine: str | None) -> tuple[str, str]:
    """What was recorded, and what was written and comes next."""
    sizes = ", ".join(f"{bucket.bytes / 2**20:.4g}" for bucket in found.steady_buckets[:8])
    more = ", …" if len(found.steady_buckets) > 8 else ""
    name = "" if machine else " --set cluster.machine=NAME"
    return (
        f"{found.model} on {found.device.name}, rank 0 of {found.world_size:,}: "
        f"{show(found.step.end_s, 's')} a step with hooks, {show(found.plain_step, 's')} without; "
        f"batch {found.batch}; buckets of {sizes}{more} MiB",
        f"{out} written; next: dpsim run {scenario_file(out)}{name}",
    )


def scenario(found: Recording, record: str, machine: str | None) -> str:
    """The text of a scenario that plays `found`, the record in file `record`."""
    knobs = {key: getattr(found.ddp, key) for key in _DEFAULTS}
    own = {key: value for key, value in knobs.items() if value != _DEFAULTS[key]}
    version = ".".join(found.torch.partition("+")[0].split(".")[:2])
    cluster: dict[str, Any] = {"ranks": found.world_size}
    data: dict[str, Any] = {
        "title": f"{found.model}, recorded on {found.device.name}",
        "model": {"record": record},
        "cluster": {"machine": machine, **cluster} if machine else cluster,
        "strategy": {"kind": "ddp", "torch": version, **own},
        "batch": {"per_device": found.batch},
        "precision": {"compute": found.compute_dtype},
        "optimizer": {"kind": _optimizer(found)},
        "sweep": {"cluster.ranks": _counts(found.world_size)},
    }
    help_ = (
        "" if machine else "# Name a machine: --set cluster.machine=NAME (dpsim show machines).\n"
    )
    return marked("measure", f"{help_}{yamlfile.dump_yaml(data)}")


_DEFAULTS = {
    "bucket_cap_mb": None,
    "find_unused_parameters": False,
    "static_graph": False,
    "gradient_as_bucket_view": False,
    "broadcast_buffers": True,
}


def _optimizer(found: Recording) -> str:
    """The kind by which memory is counted; an unknown class counts as adam, the largest."""
    if found.optimizer is None:
        return "none"
    if found.optimizer.class_ == "SGD":
        return "momentum" if found.optimizer.momentum else "sgd"
    return _OPTIMIZERS.get(found.optimizer.class_, "adam")


def _counts(world_size: int) -> list[int]:
    """1, 2, 4, … up to the world size."""
    powers = [2**k for k in range(world_size.bit_length())]
    return powers if powers[-1] == world_size else [*powers, world_size]
