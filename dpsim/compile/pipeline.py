"""Pipelines: a schedule, a mesh and a strategy become the programs of all ranks.

Execution (docs/assumptions.md).  Every pipeline rank runs its schedule's list strictly in order.
What a stage puts out travels to the next stage when the operation that made it has ended, on a
stream of its own for every pair of stages; a transfer delays its receiver only, unless
`blocking_sends`.  Ranks that split layers between them exchange activations after each of a
stage's passes, all of a pass at once: nothing else can run meanwhile.  So do ranks that share out
experts (`dpsim/compile/dispatch.py`), unless `moe: {overlap: true}`, and ranks that split
sequences, but for what runs beside attention (`dpsim/compile/context.py`).  Gradients are exchanged
between those that hold the same parameters in the last micro-batch of each stage.  Then all ranks
wait for each other (the gradient norm and the check for infinities), and the optimizer runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.collectives import Ranks
from dpsim.compile.groups import Partition, everyone
from dpsim.compile.layout import DATA, TENSOR, Layout
from dpsim.compile.pipeline_rank import PipelineRank
from dpsim.compile.placement import Mesh
from dpsim.compile.program import Cast, Program
from dpsim.compile.routing import EXPERT_DATA
from dpsim.compile.stage_rank import Jobs, backward_stream, forward_stream
from dpsim.compile.strategies import Job, Strategy
from dpsim.compile.walked_rank import WalkedRank
from dpsim.core.record import Refused

Groups = dict[str, Partition]


def cast(layout: Layout, strategy: Strategy, shares: Sequence[int], jobs: Jobs) -> Cast:
    """Who plays what: one program per pipeline rank and size of micro-batch.

    Raises Refused where the schedule or the strategy cannot take the mesh.
    """
    mesh = layout.mesh
    first = jobs(0, shares[0])
    lists = layout.acts(first.micro_batches)
    compiler = PipelineRank if strategy.stage_walk(first) is None else WalkedRank
    if layout.schedule.pipes > 1 and compiler is WalkedRank:
        raise Refused(
            "two pipelines are modelled where replicas exchange gradients at the end of a step; "
            "ddp, zero (stage 1), megatron and horovod are accepted, and dualpipe_v with all",
            ("schedule", "kind"),
        )
    roles: dict[tuple[int, int], int] = {}
    programs: list[Program] = []
    numbers = []
    for rank in range(mesh.ranks):
        key = (mesh.place(rank, "pipeline"), shares[rank])
        if key not in roles:
            roles[key] = len(programs)
            part = compiler(layout, key[0], key[1], jobs, strategy)
            programs.append(part.program(lists[key[0]]))
        numbers.append(roles[key])
    groups = _groups(layout) | _shared(layout, strategy, first)
    return Cast(tuple(programs), tuple(numbers), groups)


def _shared(layout: Layout, strategy: Strategy, job: Job) -> Groups:
    """The groups of ranks that the strategy names, of the replicas of every stage."""
    found: Groups = {}
    for name, partition in strategy.groups_of(job).items():
        for row in range(layout.mesh.pipeline):
            replicas = layout.replicas(row, layout.mesh.data_groups)
            found[f"{name}.{row}"] = tuple(
                _among(own, group) for own in replicas for group in partition
            )
    for name, partition in _of_experts(strategy, job).items():
        for row in range(layout.mesh.pipeline):
            replicas = layout.replicas(row, layout.mesh.expert_data_groups)
            found[f"expert {name}.{row}"] = tuple(
                _among(own, group) for own in replicas for group in partition
            )
    return found


def _of_experts(strategy: Strategy, job: Job) -> Groups:
    """What the strategy names of the ranks that hold the same experts."""
    sparse = (part for part in job.parts if part.holders is not None)
    return next((strategy.expert_groups(part) for part in sparse), {})


def _among(ranks: Ranks, places: Ranks) -> Ranks:
    """Those of `ranks` at `places`, as a range where both are."""
    if isinstance(ranks, range) and isinstance(places, range):
        return ranks[places.start : places.stop : places.step]
    return tuple(ranks[place] for place in places)


def players(cast: Cast, mesh: Mesh) -> Cast:
    """`cast` with one player per pipeline rank, for all ranks that do the same at the same time."""
    real = tuple(mesh.rank(pipeline=row, tensor=0, data=0) for row in range(mesh.pipeline))
    number = {rank: player for player, rank in enumerate(real)}
    groups: Groups = {}
    for name, partition in cast.groups.items():
        kept = (tuple(number[r] for r in group if r in number) for group in partition)
        groups[name] = tuple(group for group in kept if group)
    return Cast(cast.programs, tuple(cast.roles[rank] for rank in real), groups, real)


def _groups(layout: Layout) -> Groups:
    mesh = layout.mesh
    groups: Groups = {"world": everyone(mesh.ranks)}
    for row in range(mesh.pipeline):
        groups[f"{TENSOR}.{row}"] = mesh.tensor_groups(row)
        groups[f"{DATA}.{row}"] = layout.replicas(row, mesh.data_groups)
        if layout.splitting is not None:
            found = layout.splitting.groups(mesh.context_groups(row))
            groups |= {f"{name}.{row}": among for name, among in found.items()}
        if layout.routes:
            groups[f"{EXPERT_DATA}.{row}"] = layout.replicas(row, mesh.expert_data_groups)
            groups |= {f"{way.group}.{row}": among for way, among in layout.routes[row]}
    for stage in layout.neighbours:
        here, there = layout.home(stage), layout.home(stage + 1)
        groups[forward_stream(stage)] = mesh.pairs(here, there)
        groups[backward_stream(stage)] = mesh.pairs(there, here)
    for k, (one, other, _) in enumerate(layout.shared):
        groups[f"table.{k}"] = mesh.pairs(layout.home(one), layout.home(other))
    return groups
