"""`dpsim import`: topology files of a node in, a machine file out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.options import Json, Text, Where, argument, option, out_option

PLACE = 90
Files = Annotated[list[Path], argument("NCCL topology XML, output of nvidia-smi topo -m.", "FILES")]
Device = Annotated[Text, option("Which GPU it is: h100-sxm, a100-sxm-80gb, …", "NAME")]
Like = Annotated[Text, option("Take from there what the files don't say.", "MACHINE")]
Out = Annotated[Where, out_option("Write the machine there.", "FILE")]


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
