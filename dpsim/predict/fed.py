"""Fed: how the steps of a case are fed, and what cores and storage would not hold them up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpsim.cases.case import Case
from dpsim.money.usage import Usage
from dpsim.predict.player import Played
from dpsim.predict.point import FedStep, Point


def with_reading(case: Case, point: Point, use: Usage) -> Usage:
    """`use` with what loaders read of a storage; as it is where nothing is known of that."""
    loader = case.feed.made.at_hand.loader if case.feed else None
    fed = point.input
    if loader is None or loader.storage is None or fed is None or not fed.read:
        return use
    reads = fed.read / loader.sample_bytes * loader.requests()
    stored = (loader.samples or 0) * loader.sample_bytes
    return replace(use, stored=stored, read=fed.read, reads=reads)


def fed_step(case: Case, played: Played) -> FedStep | None:
    """How steps are fed; None where nothing is known of what feeds them."""
    feed, meal = case.feed, played.meal
    if feed is None or meal is None:
        return None
    made, training = feed.made, meal.step - meal.wait
    of_node = sum(made.counts[: made.per_node]) * made.micro
    cores = read = needed = None
    if made.loader is not None:
        cores = made.draws.seconds * of_node / training if training else None
        if made.at_hand.storage is not None:
            step = sum(made.counts) * made.micro * made.at_hand.size * made.at_hand.missed
            read, needed = step / meal.step, step / training if training else None
    return FedStep(
        input_s=meal.period,
        exposed_input_s=meal.wait,
        limit=meal.limit,
        starts=meal.starts,
        first_batch_s=meal.gap,
        epoch_s=meal.epoch,
        needed_per_s=of_node / training if training else 0.0,
        reached_per_s=of_node / meal.period if meal.period else 0.0,
        cores=cores,
        read=read,
        read_needed=needed,
    )


def free_loaders(good: Sequence[Case]) -> Iterator[str]:
    """That preparing a sample takes a loader no time; tokenised texts take nothing but reading."""
    for case in good:
        loader = case.feed.made.loader if case.feed else None
        if loader is None or loader.token_bytes or loader.collate or loader.device_seconds():
            continue
        if not any(float(kind.decode) for kind in loader.kinds):
            pictures = loader.photograph is not None and case.model.sample == "image"
            guess = " or, of pictures, `photograph`" if pictures else ""
            yield (
                "input: preparing a sample takes this loader no time, for nothing says what it "
                f"takes; write decode: a measured time{guess}"
            )
            return
