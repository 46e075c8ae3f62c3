"""How far `dpsim serve` is from published serving runs, and how wide its intervals have to be.

    python validation/serving.py predict -o ROWS    plays the rows of serving/published.csv
    python validation/serving.py bench FOLDER       plays LLMServingSim's bench/examples
    python validation/serving.py judge ROWS         errors by model; widths, models left out
    python validation/serving.py learn ROWS         writes dpsim/core/fitted/serving.yaml

Rows are runs of InferenceX (SemiAnalysisAI/InferenceX) that ai-dynamo/aiconfigurator has collected
(Apache-2.0): vLLM with attention data-parallel and experts over all ranks.  Ten times as many
prompts as are under way at once, all of the first at once, and lengths between 0.8 and 1 times what
the row says (`--num-prompts $((CONC * 10))`, a range ratio of 0.8); serving limits are vLLM's.
Their number of API servers is not said: one for each replica.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpsim.core import constants
from dpsim.core.constants import Constant
from dpsim.core.record import Refused
from dpsim.serving.described import taken_service
from dpsim.serving.ends import between_tokens
from dpsim.serving.fleet import Fleet
from dpsim.serving.service import offered, played

HERE = Path(__file__).resolve().parent / "serving"
#: prompts over those that are under way at once
ROUNDS = 10
KINDS = ("ttft", "tpot")
#: LLMServingSim's runs of vLLM 0.19: folder, model, machine, engine
BENCH: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("RTX4090/Llama-3.1-8B", "llama-3.1-8b", "rtx4090-8",
     {"max_num_seqs": 256, "max_model_len": 32_768}),
    ("RTXPRO6000/Llama-3.1-8B", "llama-3.1-8b", "rtx-pro-6000-8", {}),
    ("RTXPRO6000/Qwen3-32B", "qwen3-32b.json", "rtx-pro-6000-8", {"tensor": 2}),
    ("RTXPRO6000/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b", "rtx-pro-6000-8", {"replicas": 2}),
)  # fmt: skip


def service_of(row: Mapping[str, str]) -> dict[str, Any]:
    """The serving scenario of a row."""
    replicas, at_once = int(row["replicas"]), int(row["concurrency"])
    return {
        "model": {"huggingface": f"{row['model']}.json"},
        "cluster": {"machine": row["machine"]},
        "serving": {"engine": "vllm", "replicas": replicas, "tensor": int(row["tensor"]),
                    "weights": row["weights"], "api_servers": replicas,
                    "max_model_len": int(row["input"]) + int(row["output"]) + 200},
        "requests": {"count": ROUNDS * at_once, "concurrency": at_once,
                     "input": round(0.9 * int(row["input"])),
                     "output": round(0.9 * int(row["output"])),
                     "lengths": "uniform", "spread": 1 / 9},
    }  # fmt: skip


def means(fleet: Fleet) -> dict[str, float]:
    """Mean TTFT and TPOT [ms], and how long requests are queued."""
    first = [one.first - one.came for one in fleet.served]
    between = between_tokens(fleet)
    queued = [one.queued for one in fleet.served]
    found = {"ttft": first, "tpot": between, "queued": queued}
    return {name: 1e3 * float(np.mean(values)) for name, values in found.items()}


def predict(out: Path, every: int) -> None:
    """Play every so many-th row, and write it with what was predicted."""
    with (HERE / "published.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[::every]
    with out.open("w", encoding="utf-8") as file:
        for row in rows:
            loaded = taken_service(service_of(row), HERE)
            fleet = played(offered(loaded), loaded.service.requests, 0, HERE)
            file.write(json.dumps({**row, "predicted": means(fleet)}) + "\n")
            file.flush()


def logs(rows: list[dict[str, Any]], kind: str) -> Iterator[tuple[str, float]]:
    """The model, and ln(measured / predicted), of each row: above 0 dpsim is too fast."""
    for row in rows:
        if row[f"{kind}_ms"]:
            error = math.log(float(row[f"{kind}_ms"]) / row["predicted"][kind])
            yield f"{row['model']} {row['weights']}", error


def ends(found: list[float]) -> tuple[float, float]:
    """Factors by which measured values are below and above predicted ones, for 90 % of `found`."""
    low, high = np.quantile(found, [0.05, 0.95])
    return max(math.exp(-float(low)), 1.0), max(math.exp(float(high)), 1.0)


def left_out(pairs: list[tuple[str, float]], wider: float = 1.0) -> dict[str, float]:
    """For each model, the share of its rows inside the ends of all others, in logs so many times as
    wide."""
    found = {}
    for model in sorted({name for name, _ in pairs}):
        fast, slow = map(math.log, ends([log for name, log in pairs if name != model]))
        own = [log for name, log in pairs if name == model]
        found[model] = float(np.mean([-wider * fast <= log <= wider * slow for log in own]))
    return found


def widening(pairs: list[tuple[str, float]]) -> float:
    """By how much ends have to be widened for 90 % of the rows of models left out, each model
    counting alike."""
    for wider in np.arange(1.0, 5.0, 0.01):
        if np.mean(list(left_out(pairs, float(wider)).values())) >= 0.9:
            return float(wider)
    raise Refused("no width holds 90 % of models left out")


def judge(rows: list[dict[str, Any]]) -> None:
    for kind in KINDS:
        pairs = list(logs(rows, kind))
        wider, held = widening(pairs), left_out(pairs)
        for model, inside in held.items():
            own = [log for name, log in pairs if name == model]
            middle, size = np.median(own), np.median(np.abs(own))
            print(
                f"{kind} {model}: {len(own)} rows, measured x {math.exp(middle):.2f} of what is "
                f"predicted in the median, off by x {math.exp(size):.2f}; {inside:.0%} inside what "
                "the others say"
            )
        after = np.mean(list(left_out(pairs, wider).values()))
        print(f"{kind}: widened by {wider:.2f}, {after:.0%} of models left out are inside")


def learn(rows: list[dict[str, Any]]) -> None:
    """Write the widths of intervals.  A first token waits for steps too: it is no surer than they
    are."""
    found: dict[str, Constant] = {}
    for kind in ("tpot", "ttft"):
        pairs = list(logs(rows, kind))
        wider, models = widening(pairs), sorted({name for name, _ in pairs})
        each = [ends([log for name, log in pairs if name != model]) for model in models]
        spread = np.std(np.array(each), axis=0)
        for place, side in enumerate(("fast", "slow")):
            value = ends([log for _, log in pairs])[place] ** wider
            if kind == "ttft":
                value = max(value, found[f"tpot.{side}"].value)
            found[f"{kind}.{side}"] = Constant(
                value=round(value, 3), error=round(float(spread[place]), 3), unit="1",
                meaning=f"factor around a mean {kind.upper()}: the {side} end of 90 %",
                fitted_on=f"{len(pairs)} runs of {len(models)} models and dtypes with experts, "
                f"widened by {wider:.2f} to hold 90 % of those left out; the error is between "
                "those left out",
                n=len(pairs),
            )  # fmt: skip
    head = "How far published serving runs lie from predictions; written by\n"
    constants.save("serving", head + "python validation/serving.py learn, never by hand.", found)


def bench(folder: Path) -> None:
    """Beside LLMServingSim's runs, request by request."""
    for place, model, machine, engine in BENCH:
        text = (folder / place / "vllm" / "requests.jsonl").read_text(encoding="utf-8")
        measured = [json.loads(line) for line in text.splitlines()]
        # the engine's clock began so long after the wall's, where one was queued at once
        apart = min(one["queued_ts"] - one["arrival_time"] for one in measured)
        came = [one["arrival_time"] + apart for one in measured]
        lines = [{"arrival_s": at - min(came), "input": one["input_toks"],
                  "output": one["output_toks"]}
                 for at, one in zip(came, measured, strict=True)]  # fmt: skip
        (HERE / "requests.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        asked = {"engine": "vllm", "replicas": 1, "max_num_seqs": 128,
                 "max_num_batched_tokens": 2048, **engine}  # fmt: skip
        loaded = taken_service(
            {"model": {"huggingface": model}, "cluster": {"machine": machine},
             "serving": asked, "requests": {"file": "requests.jsonl"}}, HERE,
        )  # fmt: skip
        found = means(played(offered(loaded), loaded.service.requests, 0, HERE))
        (HERE / "requests.jsonl").unlink()
        first = [one["first_token_ts"] - at for at, one in zip(came, measured, strict=True)]
        between = [(one["last_token_ts"] - one["first_token_ts"]) / (one["output_toks"] - 1)
                   for one in measured if one["output_toks"] > 1]  # fmt: skip
        truth = {"ttft": 1e3 * float(np.mean(first)), "tpot": 1e3 * float(np.mean(between))}
        told = (f"{k} {found[k]:.1f} ms, measured {truth[k]:.1f} ({found[k] / truth[k] - 1:+.1%})"
                for k in KINDS)  # fmt: skip
        print(f"{place}: {', '.join(told)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("predict", "judge", "learn", "bench"))
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("-o", "--out", type=Path, default=Path("rows.json"))
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    if given.what == "predict":
        predict(given.out, given.every)
        return 0
    if given.file is None:
        raise Refused("which file, or folder?")
    if given.what == "bench":
        bench(given.file)
        return 0
    lines = given.file.read_text(encoding="utf-8").splitlines()
    {"judge": judge, "learn": learn}[given.what]([json.loads(line) for line in lines])
    return 0


if __name__ == "__main__":
    sys.exit(main())
