"""Published steps of models with experts against what dpsim says of them.

    python validation/experts.py TABLE [WORD]     rows that say WORD alone
    python validation/experts.py TABLE --learn    and write how far such steps may be behind

TABLE has the columns source, model, hardware, n_gpus, strategy, setting, metric, value and note.

It prints: rows of one (model, hardware, dtype, release), calibrated on the first of them; longer
sequences on more ranks, calibrated on the shortest; all rows uncalibrated, with their interval;
runs with and without overlap of all-to-alls, and with balanced and free routing, calibrated on the
former; DeepEP's rates by the number of ranks, from two of them; and the GPU-hours of DeepSeek-V3's
training (scenarios/deepseek-v3-h800.yaml with the batch of nearly all of it).  No prediction is
fitted to it.  By what factor the computing of experts would have to be longer for 95 of 100 steps
to lie below the slow end of their interval is `experts.slow`, of which `--learn` writes the value
to dpsim/core/fitted/training.yaml: the only number of predictions that is learned from the table.
Beside it stand the least, the median and the most of measured over predicted, which warnings say.

What rows do not say is taken as: distributed optimizer with overlapped reductions, of gradients in
bf16 (NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs/: qwen/qwen3_llm_pretrain.py 05c0c90f,
deepseek/deepseek_llm_pretrain.py 01328424, gpt_oss/gpt_oss_llm_pretrain.py 0501207b,
nemotronh/nemotron_3_llm_pretrain.py 13d58bbe, kimi/kimi_llm_pretrain.py 013180a7); tokens sent to a
node once (DeepEP, HybridEP), unless a row says alltoall; routing balanced, unless it says dropless;
stages cut by time; beside that what the recipes of its release say (`OVERLAPPED`, `ONCE`, `EVEN`);
no recomputation, unless it or the command beside it says so; context
parallelism as a ring.  Other models and precisions are refused, and counted.
"""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import _expert_widths
from _expert_hours import hours

from dpsim.core.errors import SimulationError
from dpsim.core.record import Refused
from dpsim.describe.scenario import load
from dpsim.models.huggingface import read_config
from dpsim.predict.point import Interval

Row = dict[str, str]
ROOT = Path(__file__).parent.parent
CONFIGS = ROOT / "dpsim/models/configs"
#: public configurations of models that are not bundled, by what differs from one that is
_SUPER = {
    "hidden_size": 4096, "mamba_num_heads": 128, "n_routed_experts": 512,
    "num_experts_per_tok": 22, "moe_latent_size": 1024, "moe_intermediate_size": 2688,
    "moe_shared_expert_intermediate_size": 5376, "num_hidden_layers": 88,
    "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
    "EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseekv3": ("deepseek-v3", {}),
    "gptoss120b": ("gpt-oss-120b", {}),
    "nemotron3nano": ("nemotron-3-nano-30b-a3b", {}),
    "nemotron3super": ("nemotron-3-nano-30b-a3b", _SUPER),
    "kimik2": ("kimi-k2", {}),
    "llama38b": ("llama-3-8b", {}),
    "llama370b": ("llama-3-70b", {}),
    "llama31405b": ("llama-3.1-405b", {}),
    "qwen330ba3b": ("qwen3-30b-a3b", {}),
    "qwen3235b": ("qwen3-235b-a22b", {}),
}
LEARN = "--learn"
#: machines, and how many GPUs of a node are used
MACHINES = {
    "GB300": ("gb300-nvl72", 64),
    "GB200": ("gb200-nvl72", 64),
    "B300": ("dgx-b300", 8),
    "B200": ("dgx-b200", 8),
    "H100": ("dgx-h100", 8),
}


#: what the table leaves out: the commands beside the rows of long sequences in
#: yanring/Megatron-MoE-ModelZoo e8650517 best_practice/qwen3/readme.md recompute `layernorm moe`
_LONG = re.compile(r"best_practice/qwen3/readme.md#L3[5-8]$")


#: what the table leaves out, and the recipes of a row's release say (NVIDIA-NeMo/Megatron-Bridge,
#: scripts/performance/configs of v0.3.0, v0.4.0, v0.4.2 and v0.5.0, perf_recipes of v0.6.0): from
#: which release on all-to-alls run beside computing, by model, hardware and whether it is in 8 or
#: 4 bits
OVERLAPPED = {
    ("deepseekv3", "GB300", True): "26.06",
    ("deepseekv3", "GB200", True): "26.06",
    ("deepseekv3", "B200", True): "26.04.01",
    ("gptoss120b", "GB300", True): "26.06",
    ("gptoss120b", "GB200", True): "26.04",
    ("gptoss120b", "GB200", False): "26.04",
}
#: from which release on a token is sent to a node once, of models that otherwise send every copy
ONCE = {
    ("gptoss120b", "GB300", True): "26.06",
    ("gptoss120b", "GB200", True): "26.06",
    ("gptoss120b", "B300", False): "26.04",
    ("gptoss120b", "B300", True): "26.04",
}
#: models whose stages have equal counts of blocks: their recipes name no layout
EVEN = ("gptoss120b",)


def _from(releases: dict[tuple[str, str, bool], str], row: Row, name: str, dtype: str) -> bool:
    """Whether a row is of a release from which on `releases` says so."""
    first = releases.get((name, row["hardware"].removeprefix("DGX-"), dtype != "bf16"))
    said = re.search(r"container ([\d.]+)", row["setting"])
    return first is not None and said is not None and said[1] >= first


def _dispatcher(row: Row, name: str, dtype: str, words: str) -> str:
    """How tokens are sent."""
    every = name == "gptoss120b" and not _from(ONCE, row, name, dtype)
    return "all_to_all" if every or re.search(r"alltoall|\ba2a\b", words) else "once_per_node"


def _recomputed(row: Row) -> str:
    return "moe" if _LONG.search(row["url_or_repo_path"]) else "none"


def number(row: Row, name: str, default: int | None = None) -> int:
    """What follows `name` in a row's words."""
    found = re.search(rf"\b{name} ?(\d+)", f"{row['strategy']} {row['setting']}")
    if found is None and default is None:
        raise Refused(f"no {name} is said")
    return int(found[1]) if found else int(default or 0)


def model_of(row: Row) -> tuple[str, dict[str, Any]]:
    """The configuration of a row's model, and its name."""
    name = re.sub(r"[^a-z0-9]", "", re.sub(r"\(.*?\)", "", row["model"]).lower())
    name = {"qwen3235ba22b": "qwen3235b"}.get(name, name)
    if name not in MODELS:
        raise Refused(f"{row['model']} is not modelled")
    base, changed = MODELS[name]
    return name, json.loads((CONFIGS / f"{base}.json").read_text()) | changed


def dtype_of(row: Row) -> str:
    """The dtype that a row's setting names, as it writes it; "" where it names none."""
    found = re.search(r"MXFP8|NVFP4|FP8|BF16", row["setting"], re.I)
    return found[0] if found else ""


def machine_of(row: Row) -> str:
    """Which of `MACHINES` a row names."""
    return next(key for key in MACHINES if key in row["hardware"])


def scenario(row: Row, folder: Path) -> dict[str, Any]:
    """A row as a scenario; Refused where it is none."""
    name, config = model_of(row)
    (folder / f"{name}.json").write_text(json.dumps(config))
    words = f"{row['strategy']} {row['setting']} {row['note']}".lower()
    gpus, pipeline, tensor = int(row["n_gpus"]), number(row, "PP", 1), number(row, "TP", 1)
    expert, chunks, context = number(row, "EP"), number(row, "VPP?", 1), number(row, "CP", 1)
    dtype = next((d for d in ("nvfp4", "fp8", "bf16") if d in words), "")
    if not dtype:
        raise Refused("a precision that is not modelled")
    machine, used = MACHINES[machine_of(row)]
    replicas, batch = gpus // (tensor * pipeline * context), number(row, "GBS")
    micro = batch // (replicas * number(row, "MBS", 1))
    free = "dropless" in row["note"].lower() or "(dropless)" in row["model"]
    moe: dict[str, Any] = {"imbalance": "dropless" if free else "balanced"}
    moe["dispatcher"] = _dispatcher(row, name, dtype, words)
    moe["overlap"] = _from(OVERLAPPED, row, name, dtype) or (
        "overlap" in words and "no ep overlap" not in words and "overlap off" not in words
    )
    data: dict[str, Any] = {
        "model": {"huggingface": f"{name}.json", "sequence_length": number(row, "seq", 4096)},
        "cluster": {"machine": machine, "ranks": gpus, "gpus_per_node": min(used, gpus)},
        "strategy": {
            "kind": "megatron", "use_distributed_optimizer": True, "overlap_grad_reduce": True,
            "grad_reduce_in_fp32": False,
        },
        "parallel": {"tensor": tensor, "pipeline": pipeline, "expert": expert},
        "moe": moe,
        "batch": {"global": batch, "accumulation": micro},
        "precision": {"parameters": "bf16", "compute": dtype},
        "recompute": "full" if "recompute full" in words else _recomputed(row),
    }  # fmt: skip
    if "mtp" in row["model"].lower():
        data["model"]["multi_token"] = True
    if context > 1:
        data["parallel"]["context"] = context
    if tensor > 1:
        data["parallel"] |= {"sequence_parallel": True, "expert_tensor": 1}
    if pipeline > 1:
        if name not in EVEN:
            data["stages"] = "balanced"
        fits = chunks > 1 and micro % pipeline == 0 and pipeline * chunks <= 61
        data["schedule"] = (
            {"kind": "interleaved_1f1b", "chunks": chunks} if fits else {"kind": "one_f_one_b"}
        )
    return data


def measured(row: Row, data: dict[str, Any]) -> float:
    """The step time that a row states [s]."""
    value, batch = float(row["value"]), float(data["batch"]["global"])
    tokens, gpus = int(data["model"]["sequence_length"]), int(row["n_gpus"])
    if row["metric"].startswith("step time"):
        return value
    if row["metric"] == "tokens/s/GPU":
        return batch * tokens / (value * gpus)
    model = read_config(model_of(row)[1], sequence_length=tokens, name="m")
    # Megatron leaves masked pairs of tokens out: rows of Qwen3-235B that state a step, too, have
    # 147.3 to 148.2 GFLOP a token; these are 148.3, and with all pairs 167.3
    return batch * model.flop_per_sample() / (value * 1e12 * gpus)


def played(
    row: Row, folder: Path, calibrated: tuple[Row, float] | None = None
) -> tuple[float, float, float, float]:
    """(measured, predicted, low, high) [s]; `calibrated` on another row."""
    data = scenario(row, folder)
    truth = measured(row, data)
    data["engine"] = "auto"
    if calibrated is not None:
        scale = calibrated[1]
        first = load(data, folder, "row")
        from dpsim.cases.case import Case
        from dpsim.predict.shortened import step_time

        found = step_time(Case(first.points[0], folder, compute_scale=scale))
        return truth, found, found, found
    found, own = shown(data, folder)
    return truth, found, own.low, own.high


def shown(data: dict[str, Any], folder: Path) -> tuple[float, Interval]:
    """An uncalibrated step [s] and its interval."""
    from dpsim.cases.case import Case
    from dpsim.predict.shortened import lane_times, play
    from dpsim.predict.uncertainty import interval

    case = Case(load(data, folder, "row").points[0], folder)
    own = play(case, splits=False)
    return own.step_time, interval(case, own, None, lane_times)


def behind(rows: list[Row], folder: Path) -> list[_expert_widths.Step]:
    """Steps with what would have to be longer for each; rows that are refused have none, and those
    in 4 bits are kept to look at."""
    found = []
    for row in rows:
        if "nvfp4" in row["setting"].lower():
            continue
        with suppress(Refused, SimulationError):
            data = scenario(row, folder)
            data["engine"] = "auto"
            step, own = shown(data, folder)
            late = math.log(measured(row, data) / step)
            found.append(_expert_widths.Step(model_of(row)[0], late, own.causes))
    return found


def level(row: Row, folder: Path) -> float:
    """By what the computing of `row` has to be multiplied to take as long as measured."""
    from dpsim.cases.case import Case
    from dpsim.predict.shortened import step_time

    data = scenario(row, folder)
    case, truth = load(data, folder, "row").points[0], measured(row, data)

    def long(scale: float) -> float:
        return step_time(Case(case, folder, compute_scale=scale)) - truth

    # a step is nearly a straight line of the scale, so secants settle in a few plays
    one, other = 1.0, 1.5
    before, now = long(one), long(other)
    for _ in range(8):
        if abs(now) < 1e-4 * truth or now == before:
            break
        one, before, other = other, now, other - now * (other - one) / (now - before)
        other = max(other, 0.02)
        now = long(other)
    return other


def told(row: Row, found: tuple[float, float, float, float], kind: str) -> float:
    """Print a line; returns the error."""
    truth, now, low, high = found
    error = now / truth - 1
    inside = "" if kind != "uncalibrated" else "  inside" if low <= truth <= high else "  OUTSIDE"
    ends = f" [{low:.2f} … {high:.2f}]{inside}" if kind == "uncalibrated" else ""
    words = (row["model"][:16], row["hardware"][:9], row["n_gpus"], row["strategy"][:34])
    what = "{:16} {:9} {:>4} {:34}".format(*words)
    print(kind, what, f"{truth:7.2f} {now:7.2f} s {error:+7.1%}{ends} ", row["setting"][-40:])
    return error


def groups(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows of one model, hardware, dtype and release, where there are several."""
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        release = re.search(r"container [\d.]+|code \S+", f"{row['setting']} {row['note']}")
        key = (row["source"], row["model"], row["hardware"], dtype_of(row))
        pair = "A/B" if row["source"].startswith("Megatron-Bridge EP overlap") else ""
        found[*key, release[0] if release else pair].append(row)
    yield from (group for group in found.values() if len(group) > 1)


def sweeps(rows: list[Row]) -> Iterator[list[Row]]:
    """Rows of one model, hardware and routing that differ in sequences and the ranks that split
    them, shortest first, where there are several."""
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        mesh = re.sub(r"CP ?\d+ ?", "", row["strategy"])
        setting = re.sub(r"seq \d+ ?", "", row["setting"])
        names = (row["source"], row["model"], row["hardware"], row["n_gpus"], row["note"])
        found[*names, mesh, setting].append(row)
    for group in found.values():
        if len({number(row, "CP", 1) for row in group}) > 1:
            yield sorted(group, key=lambda row: number(row, "seq", 4096))


def accepted(rows: list[Row], folder: Path) -> list[Row]:
    """Rows that make a scenario; the others are counted by reason."""
    kept: list[Row] = []
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        try:
            load(scenario(row, folder), folder, "row")
            kept.append(row)
        except (Refused, KeyError) as error:
            reasons[str(error)[:70]] += 1
    for reason, count in sorted(reasons.items()):
        print(f"refused {count:4}: {reason}")
    return kept


def summary(errors: list[float], what: str) -> None:
    """Median and 90th percentile of absolute errors."""
    if errors:
        ordered = sorted(map(abs, errors))
        tail = ordered[min(int(0.9 * len(ordered)), len(ordered) - 1)]
        middle = statistics.median(ordered)
        print(f"== {what}: {len(ordered)} rows, median {middle:.1%}, 90th {tail:.1%}\n")


def deep_ep(rows: list[Row]) -> None:
    """Dispatch and combine of a decoding batch: a constant and the bytes that leave the node at a
    rate, (1 - 8 / ranks) of 128 tokens x 8 copies x 7,168 elements, from the second and the last
    number of ranks."""
    for metric, width in (("dispatch latency", 1.03125), ("combine latency", 2.0)):
        own = [r for r in rows if r["source"].startswith("DeepEP V1 low") and r["metric"] == metric]
        points = [(int(r["n_gpus"]), float(r["value"]) * 1e-6) for r in own if int(r["n_gpus"]) > 8]
        if len(points) < 3:
            continue
        sizes = [(1 - 8 / n) * 128 * 8 * 7168 * width for n, _ in points]
        slope = (points[-1][1] - points[0][1]) / (sizes[-1] - sizes[0])
        start = points[0][1] - slope * sizes[0]
        errors = []
        for (n, truth), size in list(zip(points, sizes, strict=True))[1:-1]:
            now = start + slope * size
            errors.append(now / truth - 1)
            print(f"DeepEP {metric:17} EP{n:<4} {truth * 1e6:6.0f} {now * 1e6:6.0f} us", end=" ")
            print(f"{errors[-1]:+.1%}")
        summary(errors, f"DeepEP {metric}, from EP{points[0][0]} and EP{points[-1][0]}")


def main() -> int:
    if len(sys.argv) < 2:
        print("experts.py: which table?  A CSV of published rows is accepted", file=sys.stderr)
        return 2
    words = [word for word in sys.argv[2:] if word != LEARN]
    if words and LEARN in sys.argv:
        print(f"experts.py: {LEARN} takes all rows, and no word", file=sys.stderr)
        return 2
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    rows = [
        row
        for row in table
        if row["source"].startswith("Megatron")
        and re.search(r"EP ?([2-9]|\d\d)", re.sub(r"HybridEP|DeepEP", "", row["strategy"]))
        and row["metric"] in ("step time", "tokens/s/GPU", "model TFLOP/s/GPU")
        and all(word in str(row) for word in words)
    ]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        rows = accepted(rows, folder)
        if LEARN in sys.argv:
            for name, constant in _expert_widths.learn(behind(rows, folder)).items():
                print(name, constant)
            return 0
        _score(rows, folder)
    deep_ep(table)
    if len(sys.argv) == 2:
        hours()
    return 0


def _score(rows: list[Row], folder: Path) -> None:
    errors = []
    for group in groups(rows):
        try:
            scale = level(group[0], folder)
            for row in group[1:]:
                errors.append(told(row, played(row, folder, (group[0], scale)), "calibrated"))
        except (Refused, SimulationError) as error:
            print(f"refused: {str(error)[:100]}")
    summary(errors, "calibrated on one row of (model, hardware, dtype, release)")
    for group in sweeps(rows):
        scale = level(group[0], folder)
        errors = [told(row, played(row, folder, (group[0], scale)), "context") for row in group[1:]]
        summary(errors, f"context parallelism ({group[0]['note'].strip()}), from its first row")
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    inside = 0
    for row in rows:
        try:
            here = played(row, folder)
        except (Refused, SimulationError) as error:
            print(f"refused: {row['model']} {row['strategy']}: {str(error)[:100]}")
            continue
        found[model_of(row)[0], machine_of(row)].append(told(row, here, "uncalibrated"))
        inside += here[2] <= here[0] <= here[3]
    errors = [error for own in found.values() for error in own]
    summary(errors, "uncalibrated")
    print(f"inside their interval: {inside} of {len(errors)}\n")
    print("| uncalibrated | rows | error, from and to | median |\n|---|---|---|---|")
    for (name, machine), own in sorted(found.items()):
        ends, middle = f"{min(own):+.0%} … {max(own):+.0%}", statistics.median(map(abs, own))
        print(f"| {name} on {machine} | {len(own)} | {ends} | {middle:.0%} |")


if __name__ == "__main__":
    sys.exit(main())
