"""What `dpsim serve` prints and writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsim.core.units import show
from dpsim.report.bundle import Bundle, write_bundle
from dpsim.report.table import Columns, put, say, warn
from dpsim.report.text import brief, clean, number, percent
from dpsim.serving.answer import RequestDelays, ServedPoint, ServingAnswer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

#: what `dpsim serve -o` writes
FILES = ("serving.json", "points.csv", "ranks.csv", "index.html")
#: columns of words
LEFT = ("limit",)
#: what is left out first where a terminal is too narrow; --json and the CSVs have all of it
_DROPPED = ("GPUs", "speed-up", "efficiency", "90 % interval", "dummy steps", "most")
#: ranks that are shown
_SHOWN = 16
#: what limits, in a word where its name is long
SHORT = {"max_num_seqs": "sequences", "kv_blocks": "KV cache", "max_num_batched_tokens": "prompts",
         "front_end": "API servers", "memory_bandwidth": "memory"}  # fmt: skip
#: what limits, in words
LIMITS = {
    "max_num_seqs": "max_num_seqs: ranks are full, and requests wait",
    "kv_blocks": "the KV cache: requests wait for blocks",
    "max_num_batched_tokens": "max_num_batched_tokens: prompts wait for room in a step",
    "front_end": "the API servers, which put out tokens one after the other",
    "balancing": "balancing: requests wait at some ranks while others have room",
    "arrivals": "nothing: it keeps up with what is asked",
    "compute": "computing",
    "memory_bandwidth": "reading weights, keys and values from memory",
    "network": "collectives between GPUs",
    "host": "the host, which prepares steps",
}


def print_serving(answer: ServingAnswer, console: Console, out: Path | None) -> None:
    """Tables of points and ranks, then what limits and what is assumed."""
    say(console, [brief(answer.name, 240)], "bold")
    say(console, [f"On {clean(answer.machine)}"])
    put(console, point_columns(answer), LEFT, _DROPPED)
    last = answer.point
    if isinstance(last, ServedPoint):
        put(console, delay_columns(last), ("",), _DROPPED)
        put(console, rank_columns(last), (), _DROPPED)
        if len(last.ranks) > _SHOWN:
            say(console, [f"and {len(last.ranks) - _SHOWN} more ranks"])
        say(console, list(sentences(answer)))
    say(console, [f"Assumption: {clean(text)}." for text in answer.assumptions])
    warn(console, answer.warnings)
    if out is not None:
        say(console, [f"Written to {clean(out)}: {', '.join(FILES)}"])


def point_columns(answer: ServingAnswer) -> Columns:
    """A row for each number of replicas."""
    heads = ("replicas", "GPUs", "requests/s", "tokens/s", "90 % interval", "speed-up",
             "efficiency", "TTFT p50", "TPOT p50", "limit")  # fmt: skip
    rows = []
    for one in answer.points:
        if not isinstance(one, ServedPoint):
            rows.append([str(one.replicas), *["–"] * 8, brief(one.error, 60)])
            continue
        low, high = number(one.output_tokens_per_s_low), number(one.output_tokens_per_s_high)
        rows.append([
            str(one.replicas), str(one.gpus), number(one.requests_per_s),
            number(one.output_tokens_per_s), f"{low} to {high}",
            number(one.speedup) if one.speedup else "–", percent(one.efficiency) or "–",
            show(one.ttft_s.p50, "s", 3),
            show(one.tpot_s.p50, "s", 3) if one.tpot_s else "–", SHORT.get(one.limit, one.limit),
        ])  # fmt: skip
    return heads, rows


def delay_columns(point: ServedPoint) -> Columns:
    """A row for each delay."""
    heads = ("", "mean", "90 % interval", "p50", "p90", "p99")
    named = [("to the first token", point.ttft_s), ("between tokens", point.tpot_s),
             ("to the last token", point.latency_s)]  # fmt: skip
    return heads, [[name, *_delay(one)] for name, one in named if one is not None]


def _delay(one: RequestDelays) -> list[str]:
    ends = f"{show(one.low, 's', 3)} to {show(one.high, 's', 3)}"
    return [show(one.mean, "s", 3), ends, *(show(v, "s", 3) for v in (one.p50, one.p90, one.p99))]


def rank_columns(point: ServedPoint, most: int = _SHOWN) -> Columns:
    """A row for each of the first `most` ranks."""
    heads = ("rank", "requests", "tokens", "waiting", "most", "running", "most", "KV in use",
             "most", "preempted", "dummy steps")  # fmt: skip
    rows = [
        [str(k), f"{r.requests:,}", f"{r.output_tokens:,}", number(r.waiting_mean),
         str(r.waiting_most), number(r.running_mean), str(r.running_most), percent(r.kv_use_mean),
         percent(r.kv_use_most), str(r.preemptions), percent(r.dummy_steps / max(r.steps, 1))]
        for k, r in enumerate(point.ranks[:most])
    ]  # fmt: skip
    return heads, rows


def sentences(answer: ServingAnswer) -> Iterator[str]:
    """What limits the service, where its steps go, and how it scales."""
    last = answer.point
    if not isinstance(last, ServedPoint):
        return
    yield f"What limits: {LIMITS[last.limit]}."
    parts = ", ".join(f"{name.replace('_', ' ')} {percent(s)}" for name, s in last.parts.items())
    yield f"Where steps go: {parts}."
    yield (
        f"A rank's KV cache holds {last.kv_tokens:,} tokens ({last.cache_bytes / 1e9:.1f} GB "
        f"beside weights of {last.weights_bytes / 1e9:.1f} GB on each GPU)."
    )
    if last.queued_s > 0.05 * last.ttft_s.mean:
        yield (
            f"Requests are queued for {show(last.queued_s, 's', 3)} of the "
            f"{show(last.ttft_s.mean, 's', 3)} until their first token, in the mean."
        )
    if last.asked_tokens_per_s is not None and last.limit == "arrivals":
        yield (
            f"Requests ask for {number(last.asked_tokens_per_s)} tokens a second while they come; "
            "the mean over the run has its beginning and its end in it.  A higher rate shows what "
            "the service can do, and how it scales."
        )
    if len(answer.points) > 1 and last.efficiency is not None:
        yield (
            f"{last.replicas} replicas with as many times the load reach "
            f"{percent(last.efficiency)} of linear scaling."
        )


def write_serving(answer: ServingAnswer, out: Path) -> None:
    """Write `FILES` into folder `out`."""
    from dpsim.report.pages.serving import page

    def fill(bundle: Bundle) -> None:
        bundle.json(FILES[0], answer.document)
        bundle.csv(FILES[1], rows(answer))
        bundle.csv(FILES[2], list(_rank_rows(answer)))
        bundle.text(FILES[3], page(answer))

    write_bundle(out, fill)


def rows(answer: ServingAnswer) -> list[dict[str, Any]]:
    """The points as a table: delays and shares are columns."""
    found = []
    for point in answer.document["points"]:
        row: dict[str, Any] = {}
        for key, value in point.items():
            if key == "ranks":
                continue
            if isinstance(value, dict):
                stem, unit = (key[:-2], "_s") if key.endswith("_s") else (key, "")
                row |= {f"{stem}_{name}{unit}": each for name, each in value.items()}
            else:
                row[key] = value
        found.append(row)
    return found


def draw_on(axes: Axes, answer: ServingAnswer) -> None:
    """Tokens per second by replicas with their 90 % interval, beside linear scaling."""
    points = [one for one in answer.points if isinstance(one, ServedPoint)]
    counts = [one.replicas for one in points]
    each = points[0].output_tokens_per_s / points[0].replicas
    axes.plot(counts, [each * count for count in counts], "--", label="linear scaling")
    (line,) = axes.plot(
        counts, [one.output_tokens_per_s for one in points], "o-", label="predicted"
    )
    low = [one.output_tokens_per_s_low for one in points]
    high = [one.output_tokens_per_s_high for one in points]
    axes.fill_between(counts, low, high, color=line.get_color(), alpha=0.2)
    axes.set_xlabel("replicas")
    axes.set_ylabel("output tokens per second")


def _rank_rows(answer: ServingAnswer) -> Iterator[dict[str, Any]]:
    for point in answer.document["points"]:
        for rank, use in enumerate(point.get("ranks", ())):
            yield {"replicas": point["replicas"], "rank": rank, **use}
