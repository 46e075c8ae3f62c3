"""From a point to a course: its nodes, its state and its steps, in seconds, nodes and rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpsim.cases.case import Case
from dpsim.cases.variant import at_ranks
from dpsim.core.record import Refused
from dpsim.life.course import Course, Outages
from dpsim.life.failures import OTHERS, Failures, Inventory, hazards
from dpsim.life.halts import Halt
from dpsim.life.recoveries import Outage, Recovery, Repair, Setting, Spares
from dpsim.life.recoveries.restart import Restart
from dpsim.life.saving import Checkpoint, CheckpointLevel, Evaluation, Saving, StepsBetween, daly
from dpsim.life.timers import Reclaimed, Silent, Windows
from dpsim.machines.leaves import leaves
from dpsim.predict import startup
from dpsim.predict.endless import check_spares
from dpsim.predict.player import before_reducing, step_time, steps_alone
from dpsim.predict.point import Point

#: a place of checkpoints, by itself or one of several
Part = Checkpoint | CheckpointLevel


def course_of(case: Case, point: Point, productive: float) -> Course:
    """What all drawn runs of `point` have in common; `productive` are the seconds of its steps."""
    scenario = case.scenario
    failures, asked = scenario.failures, scenario.checkpoint
    assert failures is not None
    assert asked is not None
    recovery: Recovery = scenario.recovery or Restart()
    nodes = case.nodes or case.ranks
    breaks = tuple(hazards(failures, _inventory(case, nodes)))
    mtti = 1.0 / max(sum(one.rate for one in breaks), 1e-300)
    step = point.step_time_s
    levels = _levels(case, asked, step)
    saving, restore = _saving(case, asked, step, mtti), _restore(case, asked.parts[-1], asked)
    together = max((one.nodes for one in breaks), default=0)
    replica = -(-case.mesh.least * nodes // case.ranks)
    setting = Setting(sum(startup.parts(case).values()), restore, step, nodes, together, replica,
                      before_reducing(case, step))  # fmt: skip
    check_spares(recovery, nodes, failures.during, recovery.usable(1, setting) > 0)
    bad, joins = failures.bad, recovery.joins(setting)
    return Course(
        productive=productive,
        nodes=nodes,
        saving=saving,
        outages=_outages(recovery, setting),
        hazards=breaks,
        seed=scenario.seed,
        spares=recovery.spares or Spares(),
        repair=recovery.repair or _taken_back(failures, joins),
        selection=recovery.selection,
        speeds=_speeds(case, point, recovery, setting),
        pace=recovery.pace(setting),
        joins=joins,
        holders=recovery.holders(setting),
        bad=(bad.share, bad.factor) if bad else (0.0, 1.0),
        always=failures.during == "always",
        levels=levels,
        evaluation=_evaluation(case.scenario.evaluation, step),
        **_by_itself(failures, nodes),
    )


def _outages(recovery: Recovery, setting: Setting) -> Outages:
    """What the job answers to each event."""
    return Outages(
        begin=Outage(0.0, setting.startup, 0.0),
        failure=recovery.outage("failure", setting),
        swap=recovery.outage("swap", setting),
        growth=recovery.outage("growth", setting),
        lost=recovery.lost(setting),
        diagnosis=recovery.diagnosis,
    )


def _taken_back(failures: Failures, joins: float) -> Repair | None:
    """Where nodes are preempted, or start up and heal while others go on, others take the places of
    what breaks at once, as they do where nobody says otherwise, but it is known which nodes are
    away."""
    return Repair(automatic=0.0) if failures.preemption or joins else None


def _by_itself(failures: Failures, nodes: int) -> dict[str, Any]:
    """What comes with notice, at a time of its own, or unseen, as a Course has it."""
    taken, window, slow, corrupt = (getattr(failures, name) for name in OTHERS)
    return {
        "reclaimed": Reclaimed(taken.notice, taken.back) if taken else None,
        "windows": Windows(window.every, window.takes) if window else None,
        "slow": Silent(nodes / slow.mtbf, slow.detection, slow.factor) if slow else None,
        "corrupt": Silent(nodes / corrupt.mtbf, corrupt.detection) if corrupt else None,
    }


def _evaluation(asked: Evaluation | None, step: float) -> Halt | None:
    """Evaluations; their interval is whole steps, the nearest to the one that is asked for."""
    if asked is None:
        return None
    every = asked.every
    steps = every.steps if isinstance(every, StepsBetween) else max(round(every / step), 1)
    return Halt(steps * step, asked.takes, copies=None)


def between_evaluations(asked: Evaluation, step: float) -> float:
    """Productive seconds from one evaluation to the next [s]."""
    found = _evaluation(asked, step)
    assert found is not None
    return found.interval


def _levels(case: Case, asked: Checkpoint, step: float) -> tuple[Halt, ...]:
    """The levels of checkpoints; none where there is but one, on the storage."""
    if asked.levels is None and asked.to == "storage":
        return ()
    found = []
    for one in asked.parts:
        every = one.every
        assert not isinstance(every, str)
        assert every is not None
        saving = _timed(case, one, asked, step, every)
        restore = _restore(case, one, asked)
        found.append(Halt(saving.interval, saving.pause, saving.write, saving.slowdown, restore,
                          one.survives))  # fmt: skip
    return tuple(found)


def _inventory(case: Case, nodes: int) -> Inventory:
    """How many there are of what breaks."""
    topology = case.topology
    if topology is None:
        return Inventory(nodes, case.ranks, None, None)
    switches = sum(leaf.number for leaf in leaves(topology)) if topology.nodes > 1 else 0
    return Inventory(nodes, case.ranks, topology.nodes * topology.nics, switches)


def _speeds(case: Case, point: Point, recovery: Recovery, setting: Setting) -> tuple[float, ...]:
    """Productive seconds a second with 0, 1, 2, … nodes lacking: samples a second, as predicted on
    so many nodes, over those of all.  Of many sizes some are predicted, others lie between."""
    sizes = []
    for lack in range(setting.nodes):
        nodes = recovery.usable(lack, setting)
        if nodes < 1:
            break
        sizes.append(nodes)
    if not sizes:
        raise Refused("goes on with no number of nodes", ("recovery",))
    least, nodes = min(sizes), setting.nodes
    played = sorted({least, *(n for k in range(20) if least < (n := nodes - 2**k)), max(sizes)})
    whole, pace = case.global_batch / point.step_time_s, recovery.pace(setting)
    fewer = tuple(n for n in played if n < nodes)
    rates = [*_rates(case, fewer), *([whole] if played[-1] == nodes else [])]
    found = np.interp(np.array(sizes, float), np.array(played, float), np.array(rates))
    return tuple(float(rate / whole * pace) for rate in found)


def _rates(case: Case, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """Samples a second on so many of the job's nodes, for each of `sizes`.  Steps know nothing of
    failures, so cases that differ in these alone share them."""
    return case.shared.known(_played, steps_alone(case), sizes)


def _played(case: Case, sizes: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(_rate(case, some) for some in sizes)


def _rate(case: Case, some: int) -> float:
    """Samples a second on `some` of the job's nodes."""
    own, nodes = case.mesh.least, case.nodes or case.ranks
    ranks = case.ranks * some // nodes // own * own
    if ranks == 0:
        said = f"{some} of {nodes} nodes do not hold a replica of the model"
        raise Refused(said, ("recovery",))
    fewer = at_ranks(case, ranks, counted=True)
    try:
        return fewer.global_batch / step_time(fewer)
    except Refused as error:
        raise Refused(f"on {some} of {nodes} nodes: {error.message}", ("recovery",)) from None


def state_bytes(case: Case) -> float:
    """What a checkpoint holds [B]: the parameters that are trained, and the optimizer's states, as
    wide as these.  With copies of 16-bit parameters in fp32 both are in fp32: 14 bytes a parameter
    with Adam, 6 without."""
    optimizer, stored = case.optimizer, case.precision.parameters
    width = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}[stored]
    copied = width == 2 and optimizer.kind != "none" and optimizer.master_weights
    states = 4 * (optimizer.states + 1) if copied else width * optimizer.states
    return float(case.model.trained * (width + states))


def checkpoint_bytes(case: Case, asked: Checkpoint) -> float:
    """What a checkpoint holds, as it is `asked` for [B].  Raises Refused where two of them are more
    than the storage holds."""
    size = asked.bytes if asked.bytes is not None else state_bytes(case)
    if asked.storage is not None and 2 * size > asked.storage:
        raise Refused(
            f"the newest checkpoint and the one being written are {2 * size / 1e12:,.4g} TB, more "
            f"than {asked.storage / 1e12:,.4g} TB",
            ("checkpoint", "storage"),
        )
    return size


def _through_nics(case: Case, rate: float) -> float:
    """`rate` of a storage, or what the nodes' NICs let through [B/s]."""
    topology = case.topology
    if topology is None or topology.nodes == 1:
        if math.isinf(rate):
            said = "needs write or write_time, or a machine of several nodes, whose NICs say it"
            raise Refused(said, ("checkpoint", "levels"))
        return rate
    return min(rate, sum(one.number * one.below * one.fastest for one in leaves(topology)))


def _saving(case: Case, asked: Checkpoint, step: float, mtti: float) -> Saving:
    """The checkpoints of a run whose steps take `step` seconds; their interval is whole steps.  The
    best one is looked for from Daly's on.  Of several levels it is the finest that outlives a
    node."""
    if asked.mode == "free":
        return Saving()
    part = next((one for one in asked.parts if one.survives > 1), asked.parts[-1])
    every = part.every
    assert every is not None
    if every != "best":
        assert not isinstance(every, str)
        return _timed(case, part, asked, step, every)
    pause, written = _seconds(case, part, asked)
    wanted = daly(max(pause, 1e-3 * step), mtti)
    least = pause + written if written else step
    return _timed(case, part, asked, step, max(wanted, math.ceil(least / step) * step))


def _timed(
    case: Case, part: Part, asked: Checkpoint, step: float, every: float | StepsBetween
) -> Saving:  # fmt: skip
    """One place of checkpoints, with an interval that is known."""
    pause, written = _seconds(case, part, asked)
    steps = every.steps if isinstance(every, StepsBetween) else max(round(every / step), 1)
    if written > steps * step:
        where = "storage does" if part.to == "storage" else f"{part.to} does"
        raise Refused(
            f"a checkpoint is written in {written:,.4g} s, and the next one begins after "
            f"{steps * step:,.4g} s of steps: the {where} not keep up",
            ("checkpoint", "every" if part is asked else "levels"),
        )
    return Saving(steps * step, pause, written, part.slowdown)


def _seconds(case: Case, part: Part, asked: Checkpoint) -> tuple[float, float]:
    """For how long steps stand still for a checkpoint, and how long it is written then [s]."""
    size = checkpoint_bytes(case, asked)
    copied = 0.0 if part.staging is None else size / (case.ranks * part.staging)
    if part.write_time is not None:
        written = part.write_time
    elif part.write is not None:
        written = size / _through_nics(case, part.write)
    elif part.to == "memory":
        written = 0.0
    else:
        written = size * (part.survives - 1) / _through_nics(case, math.inf)
    if part.mode == "async":
        return copied, written
    return (written if part.to == "storage" else copied + written), 0.0


def _restore(case: Case, part: Part, asked: Checkpoint) -> float:
    """Seconds until a checkpoint is read: from the storage each part once, or all of it by as many
    as read all; from memory at the rate at which it was copied, from peers through NICs."""
    if asked.mode == "free":
        return 0.0
    if part.read_time is not None:
        return part.read_time
    size, rate = checkpoint_bytes(case, asked), part.read or part.write
    many = 1
    if part.to == "storage":
        many = {"parts": 1, "replica": case.mesh.data, "rank": case.ranks}[asked.readers]
    if rate is None and part.write_time is not None:
        return part.write_time * many
    if rate is None and part.staging is not None and part.to == "memory":
        return size / (case.ranks * part.staging)
    return size * many / _through_nics(case, math.inf if rate is None else rate)
