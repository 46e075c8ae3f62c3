"""Who is to blame: the loss of a step by cause and by rank, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsim.core.units import show
from dpsim.predict.blame import Blame
from dpsim.report.table import put, say
from dpsim.report.text import percent

if TYPE_CHECKING:
    from rich.console import Console

CAUSES = {
    "jitter": "jitter",
    "random_slow": "ranks that are slow at random",
    "slow_ranks": "slow ranks",
    "slow_nodes": "slow nodes",
    "shared": "what nodes or racks share",
    "co_tenant": "other jobs on the nodes",
    "sequence_length": "sequences of unequal length",
    "pauses": "pauses",
    "spread": "waiting for the slowest rank",
    "host": "work of the host",
    "input": "waiting for batches",
    "copy": "copies of batches to the devices",
    "communication": "communication",
}


def name_of(cause: str) -> str:
    """ "slow_ranks[3]" as "slow rank 3"."""
    name, _, number = cause.partition("[")
    words = CAUSES.get(name, name)
    return f"{words.removesuffix('s')} {number[:-1]}" if number else words


def print_blame(found: Blame, console: Console) -> None:
    """A table of causes, and a line of ranks; nothing where nothing is lost."""
    if found.loss_s <= 1e-9 * found.quiet_s or not found.causes:
        return
    rows = [
        [name_of(one.cause), show(one.loss_s, "s"), percent(one.loss_s / found.loss_s),
         show(one.step_time_without_s, "s")]
        for one in found.causes
        if abs(one.loss_s) > 1e-9 * found.loss_s  # less is rounding
    ]  # fmt: skip
    headers = ("lost to", "time", "of losses", "step without")
    put(console, (headers, rows), ("lost to",))
    ranks = [
        ("all others" if one.rank is None else f"rank {one.rank}") + f" {show(one.loss_s, 's', 3)}"
        for one in found.ranks
    ]
    if ranks:
        text = f"Of what varies, by the rank that was waited for: {', '.join(ranks)}."
        say(console, [text])
