"""`dpsim collective`: what a collective takes, as nccl-tests prints it, before it is measured."""

from __future__ import annotations

from typing import Annotated

from dpsim.cli.answers import answer
from dpsim.cli.options import (
    Cluster,
    Json,
    MachineSets,
    NcclVersion,
    Where,
    argument,
    option,
    out_option,
)

PLACE = 60
Operation = Annotated[
    str,
    argument(
        "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all or send (sendrecv: "
        "every rank to the next); allreduce and all-reduce are all_reduce.",
        "OPERATION",
    ),
]
NodeCounts = Annotated[str, option("From A to B by doubling, or a list 1,2,8.", "A:B")]
Sizes = Annotated[str, option("Full buffers, e.g. 1KiB:8GiB.", "A:B")]
Factor = Annotated[int, option("From one size to the next.", min=2)]
Algorithm = Annotated[
    str, option("auto, ring, tree, nvls, nvls_tree, pat, collnet_chain, collnet_direct.")
]
Protocol = Annotated[str, option("auto, ll, ll128, simple.")]
Connections = Annotated[
    int,
    option(
        "TCP connections per channel: NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD.", "N", min=0
    ),
]
Curves = Annotated[Where, option("Measured curves, of dpsim calibrate.", "FILE")]
Compare = Annotated[Where, option("nccl-tests text or JSON to put beside it.", "FILE")]
AtOnce = Annotated[
    int,
    option(
        "Split the ranks into N groups (every N-th rank), all with their collective at once.",
        "N",
        min=1,
    ),
]
Routing = Annotated[str, option("balanced, or ecmp: flows are hashed to spine switches.")]
Sharp = Annotated[
    bool, option("InfiniBand switches add: SHARP plug-in, NCCL_COLLNET_ENABLE=1.", name="--sharp")
]
Seed = Annotated[int, option("Of the hash of --routing ecmp.", min=0)]
Out = Annotated[Where, out_option("Write JSON, plot and page there.")]


def collective(
    operation: Operation,
    cluster: Cluster,
    nodes: NodeCounts = "1",
    sizes: Sizes = "1KiB:8GiB",
    factor: Factor = 2,
    nccl: NcclVersion = "",
    algorithm: Algorithm = "auto",
    protocol: Protocol = "auto",
    sockets: Connections = 0,
    calibration: Curves = None,
    compare: Compare = None,
    groups: AtOnce = 1,
    routing: Routing = "",
    seed: Seed = 0,
    sharp: Sharp = False,
    set_: MachineSets = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Print time and bandwidth of OPERATION by size.

    There is a table per number of nodes.
    """
    from dpsim.checks import collective as asked
    from dpsim.report import collective as report

    found = asked.collective(
        operation, cluster, nodes=nodes, sizes=sizes, factor=factor, nccl=nccl,
        algorithm=algorithm, protocol=protocol, sockets=sockets, calibration=calibration,
        compare=compare, groups=groups, routing=routing, seed=seed, sharp=sharp, sets=set_ or (),
    )  # fmt: skip
    if out is not None:
        report.write_collective(found.document, found.setup, found.groups, out)
    shown = (found.operation, found.setup, found.groups)
    answer(json, lambda: found.document, lambda at: report.print_collective(*shown, at, out))
    return 0
