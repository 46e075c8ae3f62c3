"""Options that several commands have, and what their values mean."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

Source = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A file, or a bundled name such as quickstart.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key, e.g. cluster.nodes=4. Repeatable."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]
Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Processes; default: one per core.")]
Cluster = Annotated[
    str, typer.Option("--cluster", metavar="MACHINE", help="A machine (dgx-h100), or its file.")
]
NcclVersion = Annotated[
    str, typer.Option("--nccl", metavar="VERSION", help="NCCL's version; default: the newest.")
]
Ranks = Annotated[
    int | None, typer.Option("--ranks", min=1, help="Ranks, where a file doesn't say.")
]
Nodes = Annotated[
    int | None, typer.Option("--nodes", min=1, help="Nodes, where a file doesn't say.")
]
Operation = Annotated[
    str | None,
    typer.Option("--operation", help="The collective, where a file doesn't say: all_reduce, …"),
]


def out_option(what: str, metavar: str = "DIR") -> Any:
    """The option that says where to write; `what` is its help."""
    check = _check_folder if metavar == "DIR" else _check_file
    return typer.Option("-o", "--out", metavar=metavar, help=what, callback=check)


def _check_folder(out: Path | None) -> Path | None:
    """Refuse at once what would be refused after the work; from here on inputs are noted."""
    if out is not None:
        from dpsim.core import files, outputs

        files.note_reads()
        outputs.check_folder(out)
    return out


def _check_file(out: Path | None) -> Path | None:
    if out is not None:
        from dpsim.core import files, outputs

        files.note_reads()
        outputs.check_file(out)
    return out


def processes(jobs: int) -> int:
    """As many as --jobs asks for, else as there are cores for this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return jobs or cores or 1
