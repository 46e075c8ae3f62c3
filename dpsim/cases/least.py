"""What a step on a mesh takes at least, by what its ranks cannot do at once.

w_s is what a rank of stage s does for one micro-batch, one after the other: its passes, and
exchanges that its next pass waits for (those of the ranks that split layers, and those of the ranks
that split sequences but for what runs beside attention).

* All m micro-batches pass every stage, so stage s takes m w_s.  Before its first pass the stages
  before it have done a forward each, behind its last one the same stages do a backward each, one
  after the other: a step is no shorter than  sum_{r<s} w_r + m w_s.
* Where nothing is known of the cut but the sum W of all w_s over p stages, the largest of these is
  least where all are equal, L: w_s = (L / m) (1 - 1/m)^(s-1), so  L = W / (1 - (1 - 1/m)^p).

Schedules that split backward or have several stages a rank overlap the ends: there the largest
m w of a rank counts.  Computing is multiplied by what the slowest of all ranks takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsim.cases.case import Case
from dpsim.compile.context import ContextPasses
from dpsim.compile.job import Job
from dpsim.compile.program import Op
from dpsim.compile.schedules.gpipe import GPipe
from dpsim.compile.schedules.one_f_one_b import OneFOneB
from dpsim.compile.stage_rank import waited_for
from dpsim.models import split

Layers = range | tuple[int, ...]


def at_least(case: Case) -> float:
    """What a step of `case` takes at least [s]; Refused where it is none."""
    count, samples = case.batch.accumulation, max(case.shares)
    if case.mesh.plain:
        return case.script.waiting * count * case.pace.seconds(samples)
    layout = case.programs.layout
    jobs = (case.programs.stage_job(stage, samples) for stage in range(len(layout.stages)))
    work = [in_turn(case, job) for job in jobs]
    if whole_passes(case):
        ahead = (sum(work[:stage]) for stage in range(len(work)))
        return max(a + count * w for a, w in zip(ahead, work, strict=True))
    held = (layout.held(row) for row in range(case.mesh.pipeline))
    each = count // layout.schedule.pipes  # micro-batches that pass a stage
    return each * max(sum(work[stage] for stage in own) for own in held)


def in_turn(case: Case, job: Job, counts: Sequence[int] | None = None) -> float:
    """What a rank with `job` does for one micro-batch, one after the other [s]; `counts` says for
    how many alike each layer stands."""
    many = counts or (1,) * len(job.times)
    scale, pairs = case.script.waiting, zip(many, job.times, strict=True)
    computed = scale * sum(n * (time.forward + time.backward) for n, time in pairs)
    apart = [(n, (i,)) for i, n in enumerate(many)] if counts else [(1, range(len(many)))]
    tensors = sum(n * _of_tensor(case, job, layers) for n, layers in apart)
    return computed + tensors + _of_context(case, job, apart, scale)


def _of_tensor(case: Case, job: Job, layers: Layers) -> float:
    """Exchanges of the ranks that split `layers` [s]."""
    layout, mesh = case.programs.layout, case.mesh
    if mesh.tensor == 1 or layout.asynchronous:  # what runs beside products may be hidden
        return 0.0
    group, found = mesh.tensor_groups(0)[0], 0.0
    for forward in (True, False):
        for (way, size), many in waited_for(layout, job, layers, forward=forward).items():
            found += many * case.costs.plan(way, group, size).seconds
    return found


def _of_context(case: Case, job: Job, apart: Sequence[tuple[int, Layers]], scale: float) -> float:
    """What ranks that split sequences exchange and attention does not hide [s]; `apart` has layers,
    and how many times they are there.

    Alike posts of a pass are one, beside the attention of all of them (`together`), so what one
    layer hides in excess hides another's: they are bounded together, over all layers.
    """
    layout = case.programs.layout
    if layout.splitting is None:
        return 0.0
    passes, found = ContextPasses(layout.recompute, layout.splitting), 0.0
    groups = layout.splitting.groups(case.mesh.context_groups(0))
    for kind in ("F", "B"):
        open_: dict[tuple[str, str, float, bool], float] = {}
        for many, layers in apart:
            for post in passes.of(job, layers, kind):
                key = post.operation, post.group, post.bytes, post.last
                op = Op("", "collective", "context", operation=post.operation, bytes=post.bytes)
                taken = case.costs.of(op, groups[post.group][0]).seconds
                own = many * (taken * post.repeats - scale * post.beside)
                open_[key] = open_.get(key, 0.0) + own
        found += sum(max(seconds, 0.0) for seconds in open_.values())
    return found


def whole_passes(case: Case) -> bool:
    """Whether a rank has one stage, and its backward is one pass that the stage before waits
    for."""
    schedule = case.scenario.schedule
    return schedule is None or isinstance(schedule, OneFOneB | GPipe)


def shares_sequence(case: Case, tensor: int, context: int) -> bool:
    """Whether so many tensor ranks share a sequence of `case`, or its stretch of one of `context`
    ranks, equally."""
    return split.shares_sequence(case.model, tensor, context)


def blocks_of(case: Case) -> int:
    """How many stages a pipeline can have at most."""
    return len(split.blocks(case.model))
