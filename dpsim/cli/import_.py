"""`dpsim import`: topology files of a node in, a machine file out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpsim.cli.answers import answer
from dpsim.cli.options import Json, out_option

PLACE = 90
Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILES", help="NCCL topology XML, output of nvidia-smi topo -m."),
]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="Which GPU it is: h100-sxm, a100-sxm-80gb, …"),
]
Like = Annotated[
    str | None,
    typer.Option("--like", metavar="MACHINE", help="Take from there what the files don't say."),
]
Out = Annotated[Path | None, out_option("Write the machine there.", "FILE")]


def import_(
    files: Files, device: Device = None, like: Like = None, out: Out = None, json: Json = False
) -> int:
    """Read the node that FILES describe; scenarios use the result with `cluster.machine: FILE`."""
    from dpsim.measurements.importing import document, import_machine, name_for, save
    from dpsim.report.importing import print_import

    imported = import_machine(files, device=device, like=like, name=name_for(out))
    if out is not None:
        save(imported, out)
    answer(json, lambda: document(imported), lambda console: print_import(imported, console, out))
    return int(bool(imported.findings))
