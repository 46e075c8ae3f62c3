"""What a point costs in time, money and energy: from its step to a training run and a year.

`priced` adds it to a point; `run_of`, `cost_of`, `usage_of` and `quote_of` are what it is made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpsim.cases.case import Case
from dpsim.cases.variant import Variant
from dpsim.core.places import below
from dpsim.core.record import Refused
from dpsim.describe.convergence import Need, fitted, limit, needed, tasks
from dpsim.describe.sampler import DealtEpoch, epoch_of
from dpsim.describe.sections import Batch
from dpsim.machines.leaves import leaves
from dpsim.money.items import Bill, bill
from dpsim.money.price import Price
from dpsim.money.price_list import Quote, read_quote
from dpsim.money.usage import Power, Usage, device_hours, power
from dpsim.predict import point as parts
from dpsim.predict.compressed import over_run
from dpsim.predict.fed import with_reading
from dpsim.predict.lived import lived, with_cost, with_warm
from dpsim.predict.player import step_time
from dpsim.predict.point import Failed, Point, TrainingRun
from dpsim.predict.traffic import charged


def check(case: Case) -> None:
    """Refuse what no point of the scenario can have: a price that is not there, a power that is
    not known."""
    for key in ("price", "energy"):
        if getattr(case.scenario, key) is not None and len(case.pace.kinds) > 1:
            raise Refused("is known for one kind of device, not where they differ", (key,))
    price = case.scenario.price
    if price is None or price.machines is None:  # else another point may have its price
        quote_of(case)
    if case.scenario.energy is not None:
        power(case.scenario.energy, _machine_use(case, 1.0))


def price_of(case: Case) -> Price | None:
    """What is paid for the machine of `case`; None where nothing is."""
    price = case.scenario.price
    try:
        return None if price is None else price.on(case.scenario.cluster.machine)
    except Refused as error:
        raise Refused(error.message, ("price", *error.path)) from None


def quote_of(case: Case) -> Quote | None:
    """The line of the price list that the scenario names; None where it names none."""
    price = price_of(case)
    if price is None or price.file is None:
        return None
    path = below(case.base, price.file, "price.file")
    if not path.is_file():
        raise Refused(f"no file {price.file!r} beside the scenario", ("price", "file"))
    quote = read_quote(path, price)
    if case.topology is not None and quote.devices != case.topology.gpus:
        raise Refused(
            f"{quote.name} has {quote.devices} accelerators, a node of the scenario "
            f"{case.topology.gpus}; choose another row, or set cluster.gpus_per_node",
            ("price", "row"),
        )
    return quote


def usage_of(case: Case, busy: float) -> Usage:
    """What the job of `case` uses while its devices compute for the share `busy` of the time."""
    price = price_of(case)
    counted = price is not None and price.network is not None and price.network.per_port is not None
    use = with_warm(case, _machine_use(case, busy))
    if not counted or case.topology is None:
        return use
    return replace(use, ports=switch_ports(case))


def _machine_use(case: Case, busy: float) -> Usage:
    energy, topology, machine, device = (
        case.scenario.energy, case.topology, case.machine, case.device,
    )  # fmt: skip
    if topology is None or machine is None or device is None:
        return Usage(devices=case.ranks, busy=busy)

    def watts(given: float | None, own: float) -> float | None:
        return given if given is not None else own or None

    return Usage(
        devices=case.ranks,
        nodes=case.nodes,
        nics=(case.nodes or 0) * topology.nics,
        busy=busy,
        busy_watts=watts(energy.device_power if energy else None, device.power),
        idle_watts=watts(energy.idle_power if energy else None, device.idle_power),
        host_watts=watts(energy.host_power if energy else None, machine.host_power),
    )


def switch_ports(case: Case) -> int:
    """Ports of all switches between the nodes: one for each NIC's cable, and two for each uplink
    of a NIC's speed, of which a leaf has no more than NICs."""
    assert case.topology is not None
    ports = 0
    for leaf in leaves(case.topology):
        uplinks = math.ceil(leaf.above / leaf.fastest * (1 - 1e-12)) if leaf.below else 0
        ports += leaf.number * (leaf.below + 2 * min(uplinks, leaf.below))
    return ports


def busy_share(point: Point) -> float:
    """Share of the step in which the critical rank's device computes."""
    time = point.step_time_s
    return min(point.parts.compute_s / time, 1.0) if time > 0 else 0.0


def cost_of(case: Case, point: Point) -> Bill | None:
    """The line items of `point`, a computed point of `case`; None where nothing is priced.

    Raises Refused, by name, where a price or a power is not known.
    """
    price, energy = price_of(case), case.scenario.energy
    links = case.scenario.links or ()
    tolled = any(link.price is not None for link in links)
    if price is None and (energy is None or energy.price is None) and not tolled:
        return None
    crossing, basis = charged(case, point)
    use = replace(usage_of(case, busy_share(point)), traffic=crossing, traffic_basis=basis)
    use = with_reading(case, point, use)
    return bill(price, energy, use, quote_of(case))


def power_of(case: Case, point: Point) -> Power | None:
    """Mean power of `point` [W]; None where energy is not asked for."""
    energy = case.scenario.energy
    use = with_warm(case, _machine_use(case, busy_share(point)))
    return None if energy is None else power(energy, use)


def run_of(case: Case, point: Point) -> TrainingRun | None:
    """The training run of `point`; None where none is asked for.

    Its interval is that of the step time; that of how many steps are needed is not known, but for
    an upper bound where workers train apart.
    """
    training, bounds = case.scenario.training, point.interval
    if training is None:
        return None
    dealt = epoch(case)
    need = needed(training, case.global_batch, case.model.tokens)
    if dealt is not None:
        return _dealt_run(case, point, dealt)
    whole = need.steps * over_run(case, need.steps, point.step_time_s)
    beside = _between_epochs(case, point, need.steps)
    more = case.scenario.strategy.more_samples(case.job(max(case.shares))) or 1.0
    each = (point.step_time_s, bounds.low, more * bounds.high)
    ends = (beside + whole * seconds for seconds in each)
    return _lasting(case, need, *ends)


def _between_epochs(case: Case, point: Point, steps: int) -> float:
    """What the beginnings of epochs add to so many steps, where the loader says how long epochs
    are [s]."""
    fed = point.input
    if case.feed is None or fed is None or fed.epoch_s is None:
        return 0.0
    each = case.feed.steps_of_epoch or 1
    return case.feed.once + -(-steps // each) * max(fed.epoch_s - each * point.step_time_s, 0.0)


def _lasting(case: Case, need: Need, seconds: float, low: float, high: float) -> TrainingRun:
    hours = float(device_hours(case.ranks, seconds))
    return TrainingRun(need.steps, need.samples, need.epochs, seconds, low, high, hours)


def epoch(case: Case) -> DealtEpoch | None:
    """An epoch as the sampler deals it; None where the scenario has no sampler."""
    training = case.scenario.training
    if training is None or training.sampler is None:
        return None
    where = ("training", "sampler")
    if case.scenario.strategy.backup_workers or min(case.shares) != max(case.shares):
        raise Refused("every rank gets the same samples; batches differ here", where)
    if training.sampler.uneven and not case.scenario.strategy.takes_uneven_inputs:
        raise Refused(
            "a rank that has run out of inputs leaves the others waiting for ever, except inside "
            "strategy: {kind: ddp, join: true}",
            (*where, "uneven"),
        )
    accumulation, ranks = case.batch.accumulation, case.mesh.data
    return epoch_of(training.epoch() or 1, ranks, case.shares[0], accumulation, training.sampler)


def _dealt_run(case: Case, point: Point, dealt: DealtEpoch) -> TrainingRun:
    """The training run of `point`, epoch by epoch."""
    training = case.scenario.training
    assert training is not None
    assert training.sampler is not None
    epochs, time = int(training.epochs or 1), point.step_time_s
    if training.sampler.last_accumulation == "carry":
        steps = epochs * dealt.micro_batches // case.batch.accumulation
        seconds = steps * time - epochs * _saved(case, dealt)
    else:
        steps = epochs * dealt.steps
        seconds = epochs * ((dealt.steps - 1) * time + _last_step(case, dealt, time))
    if steps == 0:
        raise Refused("these epochs do not fill one accumulation", ("batch", "accumulation"))
    seconds *= over_run(case, steps, time)
    low, high = (
        seconds * (end / time if time > 0 else 1.0)
        for end in (point.interval.low, point.interval.high)
    )
    need = Need(steps, float(epochs * dealt.samples), float(epochs))
    return _lasting(case, need, seconds, low, high)


def _last_step(case: Case, dealt: DealtEpoch, time: float) -> float:
    """The last step of an epoch: fewer micro-batches, and a smaller one at their end [s]."""
    if dealt.last_micro_batches < case.batch.accumulation:
        time = step_time(_with_batch(case, case.shares[0], dealt.last_micro_batches))
    return time - _saved(case, dealt)


def _saved(case: Case, dealt: DealtEpoch) -> float:
    """What the smaller micro-batch at the end of an epoch takes less than a full one [s]."""
    if dealt.last_micro_batch == case.shares[0]:
        return 0.0
    sizes = case.shares[0], dealt.last_micro_batch
    full, tail = (step_time(_with_batch(case, samples, 1)) for samples in sizes)
    return full - tail


def _with_batch(case: Case, samples: int, micro_batches: int) -> Case:
    batch = Batch(per_device=samples, accumulation=micro_batches)
    return Variant("another batch", {"batch": batch}).of(case)


def priced(case: Case, point: Point) -> Point:
    """`point` with what its training run takes and costs; nothing is added where the scenario has
    no training, price and energy."""
    ideal, charged, drawn = run_of(case, point), cost_of(case, point), power_of(case, point)
    run, life = lived(case, point, ideal)
    point = replace(point, run=run, life=life, epoch=epoch(case))
    ends = (run.time_s, run.low_s, run.high_s) if run else ()
    if charged is not None:
        cost = parts.RunCost(*(float(charged.over(seconds)) for seconds in ends)) if run else None
        point = replace(
            point,
            cost_usd_per_hour=float(charged.usd_per_hour),
            money=cost,
            life=with_cost(life, run, cost),
            cost=_cost(case, point, charged),
        )
    if drawn is not None:
        energy = parts.RunEnergy(*(float(drawn.kwh(seconds)) for seconds in ends)) if run else None
        point = replace(point, power_w=float(drawn.total), energy=energy)
    return point


def _cost(case: Case, point: Point, charged: Bill) -> parts.Cost:
    """The line items of a point, and what a step, a sample, a token, a run and a year cost."""
    time, batch = point.step_time_s, case.global_batch
    step, tokens = charged.over(time), batch * case.model.tokens
    quote, price = charged.quote, price_of(case)
    return parts.Cost(
        usd_per_hour=float(charged.usd_per_hour),
        usd_per_step=float(step),
        usd_per_sample=float(step / batch),
        usd_per_token=float(step / tokens) if case.model.tokens > 1 else None,
        usd_per_run=float(charged.over(point.run.time_s)) if point.run else None,
        usd_per_year=float(charged.usd_per_year),
        items=tuple(_items(charged, time, point.run)),
        as_of=quote.as_of if quote else price.as_of if price else None,
        source=quote.source if quote else price.source if price else None,
    )


def _items(charged: Bill, time: float, run: TrainingRun | None) -> Iterator[parts.CostItem]:
    per_step = charged.shares(time)
    per_run = charged.shares(run.time_s) if run else (None,) * len(charged.items)
    for item, step, whole in zip(charged.items, per_step, per_run, strict=True):
        yield parts.CostItem(
            name=item.name,
            basis=item.basis,
            usd_per_hour=float(item.usd_per_hour),
            usd_per_step=float(step),
            usd_per_run=None if whole is None else float(whole),
            usd_per_year=float(item.usd_per_hour * charged.hours_a_year),
        )


def warnings(cases: Sequence[Case], points: Sequence[Point | Failed]) -> list[str]:
    """What to know about times to train and prices that are shown."""
    computed = [
        case
        for case, point in zip(cases, points, strict=True)
        if isinstance(point, Point) and point.run
    ]
    found: list[str] = []
    batches = [case.global_batch for case in computed]
    trained = next((case.scenario.training for case in computed), None)
    if trained is not None:
        most, _ = limit(trained)
        if trained.constant and len(set(batches)) > 1:
            found.append(
                "training: the same samples are taken to be enough at every global batch "
                f"({min(batches):,} to {max(batches):,}); large ones need more, see critical_batch"
            )
        elif most is None:
            found.append(
                "training: nothing says up to which global batch this converges; give rule or "
                "largest_batch"
            )
        if trained.task is not None and not trained.constant:
            found += _task_warnings(trained.task, min(batches))
    played = (c for c, point in zip(cases, points, strict=True) if isinstance(point, Point))
    return found + list(dict.fromkeys(filter(None, map(_other_device, played))))


def _task_warnings(name: str, batch: int) -> list[str]:
    task, error = tasks()[name], fitted(name).max_error
    found = [
        f"training: samples come from a fit to {len(task.points)} published batches of {name}, "
        f"off by up to {error:.1%}; intervals are those of the step time alone"
    ]
    if batch < task.smallest_batch:
        found.append(
            f"training: the smallest batch published for {name} is {task.smallest_batch:,}; "
            "below it the fit is continued"
        )
    return found


def _other_device(case: Case) -> str:
    """That the price list's accelerator is another than the machine's; "" where it is not."""
    quote, device = quote_of(case), case.device
    if quote is None or device is None or not quote.device:
        return ""
    first, second = (
        "".join(c for c in name.lower() if c.isalnum()) for name in (quote.device, device.name)
    )
    same = first in second or second in first
    return "" if same else f"price: {quote.name} has {quote.device}, the machine {device.name}"
