"""What FSDP, of either version, keeps in the course of a step.

torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py, 2.13, in the
order in which the host allocates:

* In forward a group's gather buffer stays beside its unsharded parameters until the next group has
  been waited for, the root's until the first one has; the root's parameters stay until the end.
  One rank alone has copies too, and no buffers.
* In backward the buffer is given up when it has been copied out; that of the group before is there
  already, prefetched.  The inputs of as many earlier reduce-scatters as may be alive, this group's
  unsharded gradients, and the shards that have been reduced so far.
* What is reduced last (the root, and a unit whose input needs no gradient) keeps its unsharded
  gradients until then.

FSDP1 (torch/distributed/fsdp/_runtime_utils.py) gathers straight into the unsharded parameters, so
it has no buffers beside them, and lets them go before it reduces.  The loss is outside the model:
while it is fullest, backward of the root, or of a unit that holds the head, has not begun, and
nothing has been prefetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpsim.compile.held import Held, Line, so_far, temporaries
from dpsim.compile.job import Job
from dpsim.compile.strategies._fsdp2_step import Group
from dpsim.core.lean import dataclass

GATHERED, UNSHARDED, INPUTS = "gathered parameters", "unsharded gradients", "reduce-scatter inputs"


@dataclass(frozen=True)
class Sharding:
    """How units are shared.

    shards    ranks that share the parameters
    after     share of a unit's parameters that a rank keeps from forward to backward (1: all)
    always    units stay gathered from one micro-batch to the next
    waits     gradients are reduced in the last micro-batch only
    inputs    inputs of earlier reduce-scatters that may be alive
    buffers   gathers have buffers of their own
    alone     one rank that shares with nobody gathers too
    """

    shards: int
    after: float
    always: bool
    waits: bool
    inputs: int = 1
    buffers: bool = True
    alone: bool = False


def held(how: Sharding, job: Job, groups: Sequence[Group], parts: dict[str, float]) -> Held:
    """`parts` (states and shards) in time."""
    always, late, backward = dict(parts), {}, {}
    made: Line = ()
    sums, first = [0.0] * len(job.model.layers), job.model.forward_order[0]
    for group in groups:
        place = first if group.root or group.raw else group.layers[0]
        sums[place] += group.stored / (group.sharers.shards if group.sharers else how.shards)
    groups = _together(groups)
    if job.micro_batches > 1 and not how.waits:  # shards of the micro-batches before
        backward["gradients"] = sums
    else:
        late["gradients"] = always.pop("gradients")
        backward["gradients"] = so_far(job, sums, tied=False)
    if how.shards > 1:
        if how.waits:
            always[UNSHARDED] = sum(_waiting(how, group) for group in groups)
        else:
            backward[UNSHARDED], made = _unsharded(job, groups)
        backward[INPUTS] = _inputs(how, job, groups)
    gathered = [0.0] * len(sums)
    if how.shards > 1 or how.alone:
        gathered, backward[GATHERED] = _gathered(how, job, groups)
    if (extra := temporaries(job, 1.0 / how.shards)) > 0:
        late["optimizer temporaries"] = extra
    return Held(always, {GATHERED: gathered}, backward, late, made)


def _waiting(how: Sharding, group: Group) -> float:
    """A group's whole gradients from one micro-batch to the next.  FSDP2 keeps them in what is
    reduced, if that is said (`_fsdp_param.py`, accumulate_unsharded_grad_if_needed); FSDP1's
    `no_sync` leaves them in `.grad` of the flat parameter that was gathered, and casts a unit's
    when it is reduced (`_runtime_utils.py`, `_post_backward_hook`, which returns before)."""
    return max(group.gradient, group.reduce) if how.buffers else group.gradient


def _together(groups: Sequence[Group]) -> list[Group]:
    """Groups that come and go together as one."""
    found: dict[tuple[int, ...], Group] = {}
    for group in groups:
        before = found.get(group.layers)
        found[group.layers] = (
            group
            if before is None
            else replace(
                group,
                gather=before.gather + group.gather,
                reduce=before.reduce + group.reduce,
                gradient=before.gradient + group.gradient,
            )
        )
    return list(found.values())


def _gathered(how: Sharding, job: Job, groups: Sequence[Group]) -> tuple[list[float], list[float]]:
    """Parameters gathered, and buffers of gathers, per layer in forward and in backward."""
    inner = [group for group in groups if not group.root]
    root = sum(group.gather for group in groups if group.root)
    stays = how.after == 1.0
    whole = sum(group.gather for group in inner) if how.always else 0.0
    of = {i: g for g, group in enumerate(inner) for i in group.layers}
    forward, backward = [root] * len(job.model.layers), [root] * len(job.model.layers)
    before = previous = 0.0
    met = -1
    for i in job.model.forward_order:
        g = of.get(i)
        if g in (None, 0) and met <= 0:  # the root's buffer, until the first group is there
            forward[i] += root * how.buffers
        if g is None:  # the root's own layers
            loss = bool(job.model.layers[i].logits)
            forward[i] += whole or how.after * before
            backward[i] += (whole or how.after * before) + previous * (not stays and not loss)
            continue
        own = inner[g].gather
        if g != met:
            met, ahead, previous = g, previous, own
            before += own
        left = whole or how.after * (before if stays else before - own)
        forward[i] += left + own * ((not stays) + how.buffers)
        loss = bool(job.model.layers[i].logits)
        backward[i] += left + (own + ahead) * (not stays and not loss)
    return forward, backward


def _unsharded(job: Job, groups: Sequence[Group]) -> tuple[list[float], list[float]]:
    """Gradients that are not reduced yet when a layer's backward ends: those of its group so far,
    and of what waits for the end; and of these its own.  Below all that trains there is none."""
    own = [0.0] * len(job.model.layers)
    for group in groups:
        whole = sum(job.model.layers[i].trained for i in group.layers) or 1
        for i in group.layers:
            own[i] = group.gradient * job.model.layers[i].trained / whole
    late = {i for group in groups if group.root or group.raw for i in group.layers}
    found = so_far(job, [size if i in late else 0.0 for i, size in enumerate(own)])
    place = {i: at for at, i in enumerate(job.model.backward_order())}
    for group in groups:
        if not (group.root or group.raw):
            total = 0.0
            for i in sorted(place.keys() & set(group.layers), key=place.__getitem__):
                total += own[i]
                found[i] += total - own[i] * bool(job.model.layers[i].logits)
    return found, own


def _inputs(how: Sharding, job: Job, groups: Sequence[Group]) -> list[float]:
    """Inputs of the reduce-scatters that came before a group's own, as many as may be alive; at
    the end the root's."""
    found = [0.0] * len(job.model.layers)
    alive: list[float] = []
    for group in reversed([group for group in groups if not group.root]):
        for i in group.layers:
            found[i] = sum(alive[-how.inputs :])
        if not group.raw:
            alive.append(group.reduce)
    last = job.model.forward_order[0]
    found[last] = max(found[last], sum(_at_end(how, group) for group in groups if group.root))
    return found


def _at_end(how: Sharding, group: Group) -> float:
    """What the root has beside its gathered parameters, its unsharded gradients and their shard
    when it is reduced.  FSDP1's autograd puts the gradients of its tensors together in a flat one,
    both beside the parameters; these are let go before it is cast and reduced
    (`_post_backward_hook`)."""
    if how.buffers or how.waits:
        return group.reduce
    shard = group.stored / how.shards
    cast = group.reduce if group.reduce > group.gradient else 0.0
    return max(group.gradient - shard, cast - group.gather, 0.0)
