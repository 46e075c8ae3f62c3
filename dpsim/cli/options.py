"""Options that several commands have, and what their values mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dpsim.cli.completion import keys, machines, scenarios
from dpsim.cli.manners import STANDARD

Text = str | None
Texts = list[str] | None
Where = Path | None


#: what a shell offers for an unfinished word
Complete = Callable[[str], list[str]]


def argument(what: str, metavar: str | None = None, complete: Complete | None = None) -> Any:
    """An argument; `what` is its help, and shells `complete` it."""
    return typer.Argument(metavar=metavar, help=what, autocompletion=complete)


def option(what: str, metavar: str | None = None, name: str = "", **limits: Any) -> Any:
    """An option, by the name of its parameter where none is given; `what` is its help."""
    return typer.Option(*[name] * bool(name), metavar=metavar, help=what, **limits)


def out_option(what: str, metavar: str = "DIR") -> Any:
    """The option that says where to write; `what` is its help."""

    def check(out: Path | None) -> Path | None:
        """Refuse at once where writing would be refused after the work; an output that is an input
        is refused when it is written, and from here on inputs are noted."""
        if out is not None and out != STANDARD:
            from dpsim.core import files, outputs

            files.note_reads()
            (outputs.check_folder if metavar == "DIR" else outputs.check_file)(out)
        return out

    if metavar in ("DIR", "FILE"):
        what += " - is standard output: one document."
    return typer.Option("-o", "--out", metavar=metavar, help=what, callback=check)


Source = Annotated[
    str,
    argument(
        "A file, a bundled name such as quickstart, or - for standard input.", "SCENARIO", scenarios
    ),
]
Sets = Annotated[
    Texts,
    option(
        "Override a key, e.g. cluster.nodes=4. Repeatable.",
        "KEY=VALUE",
        name="--set",
        autocompletion=keys,
    ),
]
MachineSets = Annotated[
    Texts,
    option(
        "Vary the machine, e.g. cluster.nics_per_node=4. Repeatable.",
        "KEY=VALUE",
        name="--set",
        autocompletion=keys,
    ),
]
Json = Annotated[bool, option("Print exactly one JSON document.", name="--json")]
Jobs = Annotated[int, option("Processes; default: one per core.", min=0)]
Cluster = Annotated[
    str, option("A machine (dgx-h100), or its file.", "MACHINE", autocompletion=machines)
]
NcclVersion = Annotated[str, option("NCCL's version; default: the newest.", "VERSION")]
Ranks = Annotated[int | None, option("Ranks, where a file doesn't say.", min=1)]
Nodes = Annotated[int | None, option("Nodes, where a file doesn't say.", min=1)]
Operation = Annotated[Text, option("The collective, where a file doesn't say: all_reduce, …")]


def processes(jobs: int) -> int:
    """As many as --jobs asks for, else as there are cores for this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return jobs or cores or 1
