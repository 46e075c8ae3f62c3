"""What to know about an answer: what is assumed, left out, refused, or does not fit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from dpsim.cases.case import Case
from dpsim.cases.coverage import notes
from dpsim.cases.stage_memory import cuts_that_fit
from dpsim.compile.compressed import payload_of
from dpsim.compile.compression import Compression
from dpsim.compile.job import gradients_of
from dpsim.core.plugins import name_of
from dpsim.describe.convergence import needed
from dpsim.describe.scenario import Loaded
from dpsim.describe.uneven import ranks_of
from dpsim.machines.topology import TRAY, Topology, alike
from dpsim.models.memory import UNFIT, UNFIT_WORDS
from dpsim.predict import connections, lived, split_backward, startup, training_run, unshared
from dpsim.predict.carried import altered
from dpsim.predict.fed import free_loaders
from dpsim.predict.findings import unexplained
from dpsim.predict.idle import idle_keys
from dpsim.predict.level import Level
from dpsim.predict.library_kernels import of_kernels, quicker_layout
from dpsim.predict.memory import WAITED, crowded, memory_of, what_would_fit
from dpsim.predict.outcome import Outcome
from dpsim.predict.peak import above_peak
from dpsim.predict.point import Failed, Point, computed
from dpsim.predict.products_dtype import left_in_fp32
from dpsim.predict.recorded import measured_at, warnings_of
from dpsim.predict.routing import found_of_experts, level_range
from dpsim.predict.unmeasured import beside_a_step, said_of
from dpsim.predict.unused import unused
from dpsim.predict.widths import doubt_of, sliced

#: links between a GPU and a NIC
_INSIDE = ("pcie", "inter_socket", "local")


def warnings(loaded: Loaded, outcomes: Sequence[Outcome], found: Level | None) -> tuple[str, ...]:
    """All warnings of an answer, in their order."""
    cases, points = [one.case for one in outcomes], [one.point for one in outcomes]
    good = [one.case for one in outcomes if one.played]
    return (
        *altered(loaded),
        *_assumed(cases[0], good, found),
        *(f"finding: {one.fault}: {one.text}" for one in (found.findings if found else ())),
        *(beside_a_step(good, points) if found is not None else ()),
        *_certain(points),
        *_nowhere(cases, points),
        *left_in_fp32(good),
        *_nobody_late(good),
        *_foreign(good),
        *_behind_pcie(good),
        *_straddling(good),
        *_left_over(good),
        *_drawn(cases),
        *_uneven(cases, good),
        *_unfit(outcomes),
        *(_crowded(outcomes) if found is None else ()),
        *(unused(good[0]) if good else ()),
        *split_backward.warnings(good),
        *_strategy_notes(good),
        *_unsettled(good),
        *unshared.warnings(outcomes),
        *dict.fromkeys(said for case in good if (said := case.scenario.strategy.caveat)),
        *_unbounded(outcomes),
        *connections.warnings(outcomes, found.counts if found else ()),
        *_unpaid(good),
        *free_loaders(good),
        *(idle_keys(good[0]) if good else ()),
        *training_run.warnings(cases, points),
        *startup.warnings(good),
        *lived.warnings(good),
        *notes(good, loaded.scenario.variability.spread),
    )


def _assumed(first: Case, good: Sequence[Case], found: Level | None) -> Iterator[str]:
    """Where compute is not measured, or rests on a record."""
    if found is None and first.machine is not None and measured_at(first) is None:
        yield from said_of(good or [first])
        if (said := found_of_experts(first)) is not None:
            yield said
        yield from of_kernels(first)
        if sliced((first, *good)):
            yield (
                "several slices: measured steps grew by 2 to 8 % for each doubling of slices "
                "beyond what their links take, which the interval has and the prediction has not"
            )
    if found is not None and good and (said := above_peak(good[0])):
        yield said
    yield from (doubt.says for doubt in first.model.doubts)
    low, high = level_range(first)
    slow = found is not None and found.findings
    if found is not None and not (slow or low <= found.scale <= high):
        than = "the layers' own durations" if measured_at(first) else "modelled"
        yield (
            f"calibrated compute is x {found.scale:.3g} of {than}; for 9 of 10 published runs that "
            f"is x {low:.2g} to {high:.2g}: is the measured step of this model, batch, precision "
            f"and device, and free of data loading?{quicker_layout(first) * (found.scale < low)}"
        )
    if found is not None and found.fit is None and any(map(doubt_of, good)):
        yield (
            f"the calibrated step took x {found.scale:.3g} of modelled: it may have been slow of "
            "itself, as some published ones were, so intervals on other counts reach down to the "
            "prediction without it; a second measured step tells (calibrate.points)"
        )
    if found and found.fit and not found.findings and (text := unexplained(found.fit)):
        yield text
    yield from warnings_of(good[0]) if good else ()


def _certain(points: Sequence[Point | Failed]) -> Iterator[str]:
    """That an interval is the number itself, and why."""
    if any(point.interval.low == point.interval.high > 0 for point in computed(points)):
        yield (
            "intervals are the numbers themselves: every duration is given, the network is ideal "
            "and nothing varies; that is exact arithmetic, and says nothing of a real machine"
        )


def _nowhere(cases: Sequence[Case], points: Sequence[Point | Failed]) -> Iterator[str]:
    """What is said of ranks and nodes that no point has."""
    most = max((point.ranks or 0 for point in points), default=0)
    nodes = max((point.nodes or 0 for point in points), default=0)
    for key, what, count, said in (
        (
            "variability.slow_ranks",
            "rank",
            most,
            [c.scenario.variability.slow_ranks for c in cases],
        ),
        (
            "variability.slow_nodes",
            "node",
            nodes,
            [c.scenario.variability.slow_nodes for c in cases],
        ),
        ("batch.per_rank", "rank", most, [c.scenario.batch.per_rank for c in cases]),
    ):
        beyond = {number for one in said for number in one or {} if number >= count}
        if beyond:
            yield f"{key}: no point has a {what} {min(beyond)}"
    texts = cases[0].scenario.cluster.devices or {}
    unmet = [text for text in texts if min(span[0] for span in ranks_of(text)) >= most]
    if unmet:
        yield f"cluster.devices: no point has a rank of {unmet[0]}"


def _nobody_late(good: Sequence[Case]) -> Iterator[str]:
    """Delays of ranks that no point has."""
    found = [case.script.delays for case in good]
    most = max((case.ranks for case in good), default=0)
    beyond = [rank for delays in found if delays for rank in delays.ranks if rank >= most]
    if beyond:
        yield f"variability.delays: no point has a rank {min(beyond)}"


def _foreign(good: Sequence[Case]) -> Iterator[str]:
    """Where ranks have another device than the links that they are played with."""
    case = good[0] if good else None
    if case is None or case.machine is None or case.topology is None or case.scenario.sites:
        return
    for device in case.pace.kinds[1:]:
        found = device and case.machine.foreign_links(device, case.topology.gpus)
        if found:
            yield f"cluster.devices: {found}"


def _behind_pcie(good: Sequence[Case]) -> Iterator[str]:
    """Where a rate is said of NICs of which a node has several, or that is more than what is
    between a NIC and the GPUs carries."""
    found = (c.topology for c in good if c.topology is not None and c.topology.nodes > 1)
    topology = next(found, None)
    said = good[0].scenario.cluster.inter_node_bandwidth if good else None
    if topology is None or said is None:
        return
    if topology.nics > 1 and good[0].scenario.cluster.nics_per_node is None:
        yield (
            "cluster.inter_node_bandwidth is that of one NIC, and a node has "
            f"{topology.nics} (cluster.nics_per_node says how many)"
        )
    links = [topology.link(edge) for edge in topology.route(0, topology.ranks - 1)]
    pairs = range(min(topology.gpus, topology.ranks - topology.gpus))
    inside = max((_inside(topology, rank) for rank in pairs), default=math.inf)
    if inside < min(link.bandwidth for link in links if link.kind not in _INSIDE):
        yield (
            "cluster.inter_node_bandwidth: is of one NIC, and it sends at most "
            f"{inside * 8 / 1e9:.4g} Gbit/s, for its PCIe carries no more"
        )


def _inside(topology: Topology, rank: int) -> float:
    """What a GPU's way to its peer on the next node carries inside nodes [B/s]: the widest of a
    node is the NIC's, for rings enter and leave a node at the GPU beside it."""
    links = map(topology.link, topology.route(rank, rank + topology.gpus))
    return min((link.bandwidth for link in links if link.kind in _INSIDE), default=math.inf)


def _straddling(good: Sequence[Case]) -> Iterator[str]:
    """Groups of ranks that lie across nodes because full nodes have no whole number of them, and
    nodes that are filled alike would."""
    for case in good:
        place, mesh = case.topology, case.mesh
        if place is None or place.nodes == 1 or case.ranks % place.nodes:
            continue
        sizes = {"tensor": mesh.tensor, "context": mesh.context, "expert": mesh.expert}
        each = case.ranks // place.nodes
        cut = [
            f"{size} {name}"
            for name, size in sizes.items()
            if place.gpus % size and each % size == 0
        ]
        if cut:
            yield (
                f"{case.ranks} ranks fill nodes of {place.gpus}, of which groups of "
                f"{' and '.join(cut)} ranks are no part: some lie across nodes; cluster.nodes: "
                f"{place.nodes} with gpus_per_node: {each} keeps each in one"
            )
            return


def _left_over(good: Sequence[Case]) -> Iterator[str]:
    """NVLink domains that are filled, but the last, where all could have as many whole groups."""
    for case in sorted(good, key=lambda case: -case.ranks):
        place, mesh = case.topology, case.mesh
        if place is None or place.nodes == 1 or not place.of_servers or not case.ranks % place.gpus:
            continue
        each = alike(
            case.ranks, place.gpus, math.lcm(TRAY, mesh.tensor * mesh.context, mesh.expert)
        )
        if each is not None:
            yield (
                f"{case.ranks} ranks fill nodes of {place.gpus} and leave "
                f"{case.ranks % place.gpus} to the last, for whose few links collectives wait; "
                f"in place of ranks cluster.nodes: {case.ranks // each} with "
                f"gpus_per_node: {each} gives all as many, as schedulers do"
            )
            return


def _drawn(cases: Sequence[Case]) -> Iterator[str]:
    """What rests on draws, or on somebody else's."""
    hashed = {case.scenario.seed for case in cases if case.scenario.cluster.routing == "ecmp"}
    if len(hashed) == 1:
        yield (
            f"cluster.routing: with seed {hashed.pop()} one draw of which flows collide; sweep "
            "over seed to see how much that is luck"
        )
    if spread := cases[0].script.unsaid:
        yield (
            "variability: ranks differ as stated, and not by the fitted spread of "
            f"{spread * 100:.1f} % beside that; if more varies than is stated, add compute.spread"
        )
    varied = cases[0].scenario.variability
    if varied.preset is not None:
        yield f"variability.preset {varied.preset}: {varied.source}"


def _uneven(cases: Sequence[Case], good: Sequence[Case]) -> Iterator[str]:
    """Where the samples of a step do not all count alike."""
    batch = cases[0].scenario.batch
    if (
        batch.by_speed
        or batch.rebalance
        or any(case.scenario.batch.per_rank and len(set(case.batches.shares)) > 1 for case in good)
    ):
        yield (
            "uneven batches: where gradients are averaged over ranks, samples of a small batch "
            "count more, unless the loss is scaled by the rank's share of the samples"
        )
    if good and good[0].scenario.strategy.backup_workers:
        n, b = good[0].ranks, good[0].scenario.strategy.backup_workers
        yield (
            f"backup workers: a step takes the first {n - b} of {n} gradients, and throughput "
            "counts their samples only"
        )


def _unfit(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Points without numbers, and those that do not fit in memory."""
    errors: dict[str, list[str]] = {}
    for one in outcomes:
        if isinstance(one.point, Failed):
            errors.setdefault(one.point.error, []).append(str(one.point.ranks))
    yield from (f"{', '.join(dict.fromkeys(at))} ranks: {text}" for text, at in errors.items())
    for one in outcomes:
        point, used = one.point, one.memory
        if used is not None and used.fits in UNFIT:
            short, there = used.shortfall / 1e9, (used.capacity or 0) / 1e9
            words = UNFIT_WORDS[used.fits]
            said = what_would_fit(one.case, used) if used.fits == "unlikely" else ""
            yield f"{point.ranks} ranks: {words}, {short:.1f} GB short of {there:.1f} GB{said}"
            more = (*_other_stages(one.case), *split_backward.beside_one_f_one_b(one.case))
            yield from (f"{point.ranks} ranks: {text}" for text in more)


def _crowded(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Pipelines that may wait for memory, where no measured step says that they do not."""
    for one in outcomes:
        used = one.memory
        if used is not None and used.fits == "likely" and crowded(one.case):
            taken, there = used.total / 1e9, (used.capacity or 0) / 1e9
            yield (
                f"{one.point.ranks} ranks: about {taken:.1f} of {there:.1f} GB taken; published "
                f"{WAITED} (torch's allocator frees blocks and asks for them again)"
            )


def _other_stages(case: Case) -> list[str]:
    """That another cut into stages would fit, where one would."""
    for cut in () if case.mesh.plain else cuts_that_fit(case):
        scenario = dataclasses.replace(case.scenario, stages=cut)
        used = memory_of(Case(scenario, case.base, case.compute_scale))
        if used.holds:
            begins = ", ".join(stage[0] for stage in cut)
            return [f"other stages fit, with {used.total / 1e9:.1f} GB; they begin with {begins}"]
    return []


def _unbounded(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Where workers have not come to the end of what they may be ahead yet."""
    for one in outcomes:
        acted, strategy = one.played.acted if one.played else None, one.case.scenario.strategy
        bound = getattr(strategy, "bound", None)
        if acted is None or bound is None or strategy.waits_for_all or acted.scene.horizon:
            continue
        ahead = max(acted.story.clocks) - min(acted.story.clocks)
        if len(one.case.batches.variation.fixed) and ahead < bound:
            yield (
                f"{one.case.ranks} ranks: the fastest worker is {ahead} clocks ahead, and may be "
                f"{bound}: in the long run it will wait for the slowest; a longer horizon shows it"
            )


def _unpaid(good: Sequence[Case]) -> Iterator[str]:
    """Servers that no price and no power counts."""
    for case in good[:1]:
        asked = case.scenario.price or case.scenario.energy
        if asked and case.scenario.strategy.behaves and (nodes := case.stage_set.own_nodes):
            yield f"price and energy are the workers': {nodes} servers come beside them"


_UNBOUNDED = (
    "compression: the time to train counts as many steps as with whole gradients; no published "
    "table bounds how many more this needs for the same loss"
)


#: a run that no warm-up is longer than [steps]
_LONG = 1e12


def _unsettled(cases: Sequence[Case]) -> Iterator[str]:
    """That a run ends before compression is as it stays, where step times are of that; of several
    runs the shortest is told."""
    shortest: dict[str, tuple[int, int, float]] = {}
    for case in cases:
        codec, training = case.scenario.compressed, case.scenario.training
        if codec is None or training is None or case.ranks == 1:
            continue
        steps = needed(training, case.global_batch, case.model.tokens).steps
        before = codec.phases(steps)
        if before and before[-1].last >= steps and steps < shortest.get(codec.kind, (_LONG,))[0]:
            shortest[codec.kind] = steps, case.ranks, codec.phases(_LONG)[-1].last
    for kind, (steps, ranks, lasts) in shortest.items():
        yield (
            f"compression: {kind}: its warm-up, all that goes before it is settled, lasts "
            f"{'all' if lasts >= _LONG else f'{lasts:,.0f}'} steps and the run {steps:,} on "
            f"{ranks} ranks: the whole run is warm-up, and step times are of what would come "
            "after it"
        )


def _codec_notes(case: Case, codec: Compression) -> tuple[str, ...]:
    """What is published of a compression, or why it changes nothing here."""
    gradients = gradients_of(case.job(max(case.shares)))
    every = payload_of(gradients, range(len(gradients))) if gradients else None
    why = codec.idle(every) if every else None
    return (f"{name_of(codec)} changes nothing: {why}",) if why else codec.notes()


def _strategy_notes(cases: Sequence[Case]) -> list[str]:
    """What strategies say of themselves, each sentence once per number of ranks."""
    found: dict[str, None] = {}
    for case in cases:
        if codec := case.scenario.compressed:
            found |= dict.fromkeys(f"compression: {text}" for text in _codec_notes(case, codec))
            if case.scenario.training is not None and not codec.learns_alike_with(
                case.scenario.optimizer.kind
            ):
                found[_UNBOUNDED] = None
        if case.mesh.plain:
            for text in case.scenario.strategy.notes(case.job(max(case.shares))):
                found[f"{case.ranks} ranks: {text}"] = None
    return list(found)
