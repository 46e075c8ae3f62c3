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
    from dpsim.measurements import importing
    from dpsim.report import importing as report

    name = importing.name_for(out)
    found = importing.import_machine(files, device=device, like=like, name=name)
    if out is not None:
        importing.save(found, out)
    document = importing.document
    answer(json, lambda: document(found), lambda console: report.print_import(found, console, out))
    return int(bool(found.findings))
