"""A run with failures in words: what they cost, what breaks, how state is saved."""

from __future__ import annotations

from dpsim.core.units import dollars, show
from dpsim.predict.answer import Answer
from dpsim.predict.point import Point, TrainingRun, WithFailures, computed
from dpsim.predict.saved import Saved
from dpsim.report.points import place, spoken_of
from dpsim.report.text import clean, duration, number, percent

#: labels of time that is not productive, in words
LABELS = {
    "fewer_nodes": "steps with fewer nodes",
    "checkpoint_save": "saving",
    "wasted_progress": "work that was lost",
    "detection": "detection",
    "waiting_for_nodes": "waiting for nodes",
    "initialization": "starting up",
    "checkpoint_restore": "reading checkpoints",
    "step_overhead": "what recovery adds to steps",
    "evaluation": "evaluation",
    "slow_nodes": "slow nodes",
    "maintenance": "maintenance",
}


def sentences(answer: Answer) -> list[str]:
    """What failures do to the run, at the largest count."""
    point = spoken_of(p for p in computed(answer.points) if p.run and p.life)
    if point is None or (run := point.run) is None or (life := point.life) is None:
        return []
    return [_time(point, run, life), _breaks(life), *_saved(life), *_sure(life)]


def _time(point: Point, run: TrainingRun, life: WithFailures) -> str:
    """The mean beside the ideal, with what takes the difference."""
    lost = sorted(life.badput.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{LABELS.get(k, clean(k))} {percent(v)}" for k, v in lost if v >= 5e-4)
    text = (
        f"Without failures it would take {duration(life.ideal_s)} on {place(point)}: of all "
        f"time {percent(life.goodput)} is productive"
    )
    if point.money and run.time_s > 0:
        ideal = point.money.usd * life.ideal_s / run.time_s
        text += f", and {dollars(ideal)} of {dollars(point.money.usd)}"
    return f"{text} ({shares})." if shares else f"{text}."


def _breaks(life: WithFailures) -> str:
    counts = [(clean(name), count) for name, count in life.interruptions_by.items()]
    counts.sort(key=lambda item: -item[1])
    what = ", ".join(f"{name} {number(count)}" for name, count in counts if count > 0)
    many = len(counts) > 1 and what
    apart = abs(life.mtti_s * life.interruptions_per_day / 86400.0 - 1.0) > 1e-9
    first = f"; at first every {duration(life.mtti_s)}" if apart else ""  # as drawn: said already
    return (
        f"A run is interrupted {number(life.interruptions)} times in the mean"
        f"{f' ({what})' if many else ''}, {number(life.interruptions_per_day)} times a "
        f"day{first}. Of {life.drawn_runs:,} runs drawn at the predicted step, which failures "
        f"alone tell apart, 10 % take less than {duration(life.p10_s)}, half "
        f"{duration(life.p50_s)}, 10 % more than {duration(life.p90_s)}."
    )


def _saved(life: WithFailures) -> list[str]:
    if life.checkpoints is None:
        return []
    found: Saved = life.checkpoints
    size = f" of {show(found.bytes, 'B', 3)}" if found.bytes is not None else ""
    beside = ""
    if found.young_s > 0:
        beside = f"; Young's interval is {duration(found.young_s)}, Daly's {duration(found.daly_s)}"
    if found.levels:
        each = "; ".join(
            f"to {one.to} every {duration(one.every_s)} ({one.steps:,} "
            f"step{'s' * (one.steps > 1)}), which holds steps up for {duration(one.pause_s)} and "
            f"is of use after {duration(one.write_s)}"
            for one in found.levels
        )
        return [f"Checkpoints{size} go {each}."]
    often, step = "", found.every_s / found.steps
    steps = f"{found.steps:,} step{'s' if found.steps > 1 else ''}"
    if found.every_s >= life.ideal_s * (1.0 - 1e-9):
        often = ": none before the run ends"
    elif found.steps == 1:
        often = ": after every step"
    elif found.write_s > found.pause_s and found.every_s - step < found.write_s:
        often = ": as soon as the one before is written"
    return [
        f"A checkpoint{size} every {duration(found.every_s)} ({steps}{often}) holds "
        f"steps up for {duration(found.pause_s)} and is of use after {duration(found.write_s)}"
        f"{beside}."
    ]


def _sure(life: WithFailures) -> list[str]:
    if life.in_time is None:
        return []
    return [f"It ends in time (training.by) with a probability of {percent(life.in_time)}."]
