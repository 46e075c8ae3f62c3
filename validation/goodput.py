"""Published runs with failures beside what dpsim says of them, from rates stated elsewhere.

    python validation/goodput.py          # some seconds; the table of docs/howto/failures.md

Nothing here is fitted.  What was not published (how long it takes to notice and to start) is
varied, and named in the row.
"""

from __future__ import annotations

import statistics
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from dpsim.describe.scenario import load
from dpsim.life.spells import Life
from dpsim.predict.lived import told
from dpsim.predict.prediction import Prediction, predict

DAY = 86400.0
RUNS = 60


class Row(NamedTuple):
    """A published figure, what it rests on, and what dpsim says."""

    published: str
    rests_on: str
    said: str


def run(nodes: int, days: float, failures: dict[str, Any], checkpoint: dict[str, Any],
        detection: str, start: str, seed: int = 0) -> Prediction:  # fmt: skip
    """A job of so many nodes that needs so many days of steps of a minute."""
    asked = described(nodes, days, failures, checkpoint, detection, start, seed)
    return predict(load(asked, Path(), "published"))


def described(nodes: int, days: float, failures: dict[str, Any], checkpoint: dict[str, Any],
              detection: str, start: str, seed: int = 0) -> dict[str, Any]:  # fmt: skip
    """The scenario of such a job."""
    return {
        "model": {"layers": [{"name": "all", "parameters": 1, "forward": "20 s",
                              "backward": "40 s"}]},
        "cluster": {"ranks": nodes}, "collective": {"backend": "free"},
        "strategy": {"kind": "ddp"}, "optimizer": {"kind": "none"}, "seed": seed,
        "training": {"samples": round(days * 1440) * nodes},
        "startup": {"load": start},
        "failures": {"runs": RUNS, **failures},
        "checkpoint": checkpoint,
        "recovery": {"kind": "restart", "detection": detection},
    }  # fmt: skip


#: Llama 3's 419 interruptions in 54 days on 16,384 devices, for nodes of eight
LLAMA = {"node": {"mtbf": f"{54 * 16384 / 419 / 8} d"}}


def rsc() -> list[Row]:
    """Meta RSC: mean times to failure by size, and the paper's formula of effective time."""
    rows = []
    for nodes, shown in ((1, "47.7 d, measured"), (128, "7.9 h, measured"),
                         (2048, "1.8 h, projected"), (16384, "0.23 h, projected")):  # fmt: skip
        hours = 1000 / 6.50 / nodes * 24
        rows.append(Row(f"Meta RSC-1, {8 * nodes:,} GPUs: a failure every {shown}",
                        "6.50 failures per 1,000 node-days", f"{hours:,.2f} h"))  # fmt: skip
    for nodes in (128, 512, 2048):
        rate, restart, each, write = 6.50 / 1000 / DAY, 300.0, 1800.0, 30.0
        formula = (1 - nodes * rate * (restart + each / 2)) / (1 + write / each)
        found = run(nodes, 14, {"preset": "meta-rsc-1"},
                    {"every": "30 min", "write_time": "30 s"}, "0 s", "5 min")  # fmt: skip
        rows.append(Row(f"Meta RSC's formula of effective time, {8 * nodes:,} GPUs: {formula:.1%}",
                        "the same rate, 5 min to restart, 30 s every 30 min",
                        f"{found.points[0]['goodput']:.1%}"))  # fmt: skip
    return rows


def llama() -> list[Row]:
    """Llama 3: 54 days on 16,384 GPUs; a checkpoint is 2.8 s at 2 TB/s, every 10 min (assumed)."""
    saved = {"every": "10 min", "write_time": "2.8 s"}
    found = [run(2048, 48, LLAMA, saved, *one).points[0]["goodput"]
             for one in (("1 min", "5 min"), ("1 min", "10 min"), ("10 min", "5 min"))]  # fmt: skip
    return [Row("Llama 3, 16,384 GPUs: more than 90 % effective",
                "419 interruptions in 54 d; 1 min to notice, 5 min to start; 1, 10; 10, 5",
                " / ".join(f"{one:.1%}" for one in found))]  # fmt: skip


def byterobust() -> list[Row]:
    """ByteRobust: three months on 9,600 GPUs; its own rate is not published in its abstract."""
    saved = {"every": "1 min", "write_time": "0.2 s"}
    found = [run(1200, 90, LLAMA, saved, *one).points[0]["goodput"]
             for one in (("1 min", "5 min"), ("10 min", "5 min"))]  # fmt: skip
    return [Row("ByteRobust, 9,600 GPUs: 97 % effective",
                "Llama 3's rate per GPU, 0.2 s a minute; 1 / 10 min to notice, 5 min to start",
                " / ".join(f"{one:.1%}" for one in found))]  # fmt: skip


def longest(life: Life) -> list[float]:
    """The three longest stretches without an interruption [s], longest first."""
    out = ("detection", "waiting_for_nodes", "initialization", "checkpoint_restore")
    spans = []
    for works, spells in groupby(life.spells, key=lambda one: one.label not in out):
        if works:
            whole = list(spells)
            spans.append(whole[-1].end - whole[0].begin)
    return sorted(spans, reverse=True)[:3]


def opt() -> list[Row]:
    """OPT-175B: 33 days of steps on 124 nodes, of which about two are lost a day."""
    best: list[list[float]] = []
    for seed in range(30):
        found = run(124, 33, {"node": {"mtbf": "62 d"}, "runs": 2},
                    {"every": "3 h", "write_time": "1 min"}, "10 min", "20 min", seed)  # fmt: skip
        outcome = found.outcomes[0]
        life = told(outcome.case, outcome.point)  # type: ignore[arg-type]
        assert life is not None
        best.append([one / DAY for one in longest(life)])
    said = []
    for place in range(3):
        drawn = sorted(one[place] for one in best)
        said.append(f"{statistics.median(drawn):.1f} ({drawn[1]:.1f} to {drawn[-2]:.1f})")
    whole = run(124, 33, {"node": {"mtbf": "62 d"}}, {"every": "3 h", "write_time": "1 min"},
                "10 min", "20 min").points[0]  # fmt: skip
    return [
        Row("OPT-175B, 1,024 GPUs: longest runs 2.8, 2 and 1.5 d",
            "two machines lost a day; median of 30 drawn runs, and 28 of them",
            ", ".join(said) + " d"),
        Row("OPT-175B: about 90 restarts", "33 d of steps, 3 h between savings, 30 min to restart",
            f"{whole['interruptions']:.0f} in {whole['time_to_train_s'] / DAY:.0f} d"),
    ]  # fmt: skip


def bloom() -> list[Row]:
    """BLOOM's chronicles (bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles.md): 48
    nodes, steps of 105 s, iteration 12,695 on 18 March 2022 and 45,000 in the night of 30 April;
    one GPU dies "every week or so", 40 s of saving every 100 steps, 12 min of evaluation every
    1,000."""
    steps, days = 45_000 - 12_695, 43.5  # half a day more or less
    asked = {
        **described(48, steps * 105.0 / DAY, {"software": {"mtbf": "7 d"}},
                    {"every": "100 steps", "write_time": "40 s"}, "10 min", "20 min"),
        "evaluation": {"every": "1000 steps", "takes": "12 min"},
    }  # fmt: skip
    layer = {"name": "all", "parameters": 1, "forward": "35 s", "backward": "70 s"}
    asked |= {"model": {"layers": [layer]}, "training": {"samples": steps * 48}}
    point = predict(load(asked, Path(), "published")).points[0]
    low, high = (steps * 105.0 / DAY / (days + more) for more in (0.5, -0.5))
    return [Row(
        f"BLOOM, 384 GPUs: steps 12,695 to 45,000 took {low:.1%} to {high:.1%} of 43 to 44 d",
        "a failure a week, 40 s every 100 steps, 12 min every 1,000; 10 min to notice, 20 to start",
        f"{point['goodput']:.1%}",
    )]  # fmt: skip


def main() -> None:
    """Print all rows as a table in Markdown."""
    print("| published | what it rests on | dpsim |\n|---|---|---|")
    for row in (*rsc(), *llama(), *byterobust(), *opt(), *bloom()):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
