"""`dpsim check-nccl`: is this bandwidth normal, and if not, what may be wrong?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dpsim.cli.answers import answer, written
from dpsim.cli.options import (
    Cluster,
    Json,
    MachineSets,
    NcclVersion,
    Nodes,
    Operation,
    Ranks,
    Where,
    argument,
    out_option,
)

PLACE = 70
File = Annotated[Path, argument("What nccl-tests printed, or its JSON (-J).", "FILE")]
Out = Annotated[Where, out_option("Write JSON and page there.")]


def check_nccl(
    file: File,
    cluster: Cluster,
    nodes: Nodes = None,
    ranks: Ranks = None,
    operation: Operation = None,
    nccl: NcclVersion = "",
    set_: MachineSets = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Compare FILE with what the cluster should reach.

    Exit code 1: low or suspicious.
    """
    from dpsim.checks import check_nccl as asked
    from dpsim.predict.collective import setup_of
    from dpsim.report.nccl_check import print_check

    setup = setup_of(cluster, {"version": nccl}, sets=set_ or ())
    found = asked.check(file, setup, operation=operation, ranks=ranks, nodes=nodes)
    steps = found.next
    if out is not None:
        from dpsim.report.pages.checked import nccl_page
        from dpsim.report.step_check import FILES, write_check

        write_check(found.document(), nccl_page(found, steps), out)
        files = written(out, FILES)
    else:
        files = ""
    answer(json, found.document, lambda console: print_check(found, steps, console, files))
    return int(found.verdict in ("low", "suspicious"))
