"""Expected outputs beside the scenarios: `scenarios/x.yaml` has `scenarios/x.expected.json`.

    python tests/golden.py            compare all, say what changed and by how much
    python tests/golden.py --update   write what the program says now

An expected output has a tag:

closed_form  the numbers follow from a formula or a hand-played timeline, named in `why`; `relative`
             is how far a mean of random steps may be from it
measured     measured points stand in the scenario; `worst_error` bounds the error against them
peer         another program's numbers
frozen       nothing but what the program said; it may change only with an entry in CHANGELOG.md
             under "Changed predictions" that names the scenario and the new revision
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCENARIOS = ROOT / "scenarios"
TAGS = ("closed_form", "measured", "peer", "frozen")
KEYS = (
    "ranks", "nodes", "global_batch", "step_time_s", "step_time_low_s", "step_time_high_s",
    "throughput_per_s", "throughput_unit", "speedup", "efficiency", "mfu", "compute_s",
    "exposed_communication_s", "bubble_s", "stall_s", "bytes_sent_per_rank",
    "padding_bytes_per_rank", "control_bytes_per_rank", "memory_bytes", "fits", "bound_s",
    "bottleneck",
)  # fmt: skip
#: kept where the scenario asks for them
ASKED = ("steps", "samples", "epochs", "time_to_train_s", "cost_usd", "energy_kwh",
         "time_to_train_ideal_s", "time_to_train_spread_s", "drawn_runs", "goodput", "badput",
         "interruptions", "loader_starts", "epoch_s", "clocks", "updates_per_s", "staleness",
         "wasted", "utilisation")  # fmt: skip
RELATIVE = 1e-9


def scenarios() -> list[Path]:
    """All bundled scenarios: the main ones, the worked toys, those that another program has played
    too, and folders to compare."""
    places = ("*.yaml", "worked/*.yaml", "against/*.yaml")
    return sorted([*(path for place in places for path in SCENARIOS.glob(place)), *folders()])


def folders() -> list[Path]:
    """Folders of candidates for `dpsim compare`: those that share something in `common/`."""
    return sorted(path.parent for path in SCENARIOS.glob("*/common"))


def expected_of(path: Path) -> Path:
    return path.with_name(path.stem + ".expected.json")


def current(path: Path) -> dict[str, Any]:
    """What the program says now, reduced to what a golden keeps."""
    import dpsim

    if path.is_dir():
        return compared(path)
    document = dpsim.predict(dpsim.read(path)).document
    points = [
        {key: point.get(key) for key in KEYS} | {key: point[key] for key in ASKED if key in point}
        for point in document["points"]
    ]
    measured = [
        {"ranks": m["ranks"], "role": m["role"], "error": m["error"]} for m in document["measured"]
    ]
    return {"scaling": document["scaling"], "points": points, "measured": measured}


#: what a golden keeps of a candidate, and of each of its jobs; nothing that is drawn
COMPARED = ("name", "ranks", "step_time_s", "efficiency", "bottleneck", "memory_bytes", "fits",
            "days", "cost_usd", "energy_kwh")  # fmt: skip
JOB = ("name", "weight", "steps", "step_time_s", "step_time_low_s", "step_time_high_s",
       "exposed_communication_s", "bytes_sent_per_rank", "memory_bytes", "efficiency",
       "bottleneck")  # fmt: skip


def compared(folder: Path) -> dict[str, Any]:
    """What `dpsim compare` says of the candidates in `folder`."""
    from dpsim.planning.candidates import asked, played
    from dpsim.planning.compare import comparison
    from dpsim.planning.compared import document

    answer = document(comparison([played(each) for each in asked([folder])]))
    points = [
        {key: found[key] for key in COMPARED}
        | {"jobs": [{key: job[key] for key in JOB} for job in found["jobs"]]}
        for found in answer["candidates"]
    ]
    chosen = {key: answer[key] for key in ("by", "recommendation", "runner_up")}
    return {**chosen, "points": points, "measured": []}


def differences(want: Any, got: Any, where: str = "") -> list[str]:
    """One line per value that changed, with its relative change."""
    if isinstance(want, dict) and isinstance(got, dict):
        keys = list(dict.fromkeys([*want, *got]))
        return [d for k in keys for d in differences(want.get(k), got.get(k), f"{where}.{k}")]
    if isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            return [f"{where}: {len(want)} entries expected, {len(got)} now"]
        pairs = enumerate(zip(want, got, strict=True))
        return [d for k, (a, b) in pairs for d in differences(a, b, f"{where}[{k}]")]
    if (
        isinstance(want, float | int)
        and isinstance(got, float | int)
        and not isinstance(want, bool)
    ):
        return _numbers(float(want), float(got), where)
    return [] if want == got else [f"{where}: {want!r} expected, {got!r} now"]


def _numbers(want: float, got: float, where: str) -> list[str]:
    # durations of a nanosecond and less are rounding of sums of seconds
    if abs(got - want) <= max(RELATIVE * max(abs(want), abs(got)), 1e-12):
        return []
    change = f" ({got / want - 1:+.3%})" if want else ""
    return [f"{where}: {want!r} expected, {got!r} now{change}"]


def update(path: Path) -> str:
    """Write the golden of `path`; a changed frozen one gets a new revision."""
    target = expected_of(path)
    old = json.loads(target.read_text()) if target.exists() else {"tag": "frozen", "why": ""}
    now = current(path)
    changed = differences(old.get("expected"), now)
    if not changed:
        return "unchanged"
    revision = old.get("revision", 0) + 1
    document = {**old, "revision": revision, "expected": now}
    target.write_text(json.dumps(document, indent=1) + "\n")
    return f"revision {revision}: {len(changed)} values changed"


def main() -> int:
    worst = 0
    for path in scenarios():
        name = str(path.relative_to(ROOT))
        if "--update" in sys.argv:
            print(f"{name}: {update(path)}")
            continue
        lines = differences(json.loads(expected_of(path).read_text())["expected"], current(path))
        print(f"{name}: {'as expected' if not lines else ''}", *lines, sep="\n  ")
        worst |= bool(lines)
    return worst


if __name__ == "__main__":
    sys.exit(main())
