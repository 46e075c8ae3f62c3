"""What dpsim costs: CPU seconds and peak memory of whole processes, beside bare NumPy passes.

    make bench                       all lines; many minutes
    make bench BENCH="--only quickstart,step-1024 --best 5"
    python benchmarks/run.py --list

A second is one of CPU time of the whole process, imports included, the best of several runs;
bytecode is compiled beforehand, as pip does.  The bare pass (benchmarks/bare.py) is timed in the
same run; the ratio to it is what says most.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from cost import ROOT, Cost, best, compiled, once
from lines import GROWTH, Line, bare, lines
from sweeps import sweeps, validated

#: lines that are more than one command: their names, and what they are
PARTS = {
    "sweep": "10,000 points (--points): in one process, killed and resumed, on Ray",
    "validate": "rows of the table of published training runs per second",
    "engines": "both engines by ranks, beside bare SimPy",
    "equal": "every transfer played, and one pass: 256 ranks, two rings over a slow link",
}


def machine() -> str:
    """Processor, cores, memory and versions."""
    model = platform.processor() or platform.machine()
    names = Path("/proc/cpuinfo")
    if names.exists():
        found = [x for x in names.read_text().splitlines() if x.startswith("model name")]
        model = found[0].partition(":")[2].strip() if found else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    packages = ("numpy", "simpy", "pydantic", "networkx")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    load = os.getloadavg()[0]
    return (
        f"{model}, {os.cpu_count()} cores (load {load:.1f}), {memory:.0f} GB\n"
        f"Python {platform.python_version()}, {versions}"
    )


def table(asked: Iterable[Line], cache: Path, times: int, limit: float) -> Iterator[str]:
    """A line of text for each line, and how the step grows with its ranks."""
    yield f"{'work':62} {'CPU s':>9} {'goal':>6} {'peak MB':>8} {'bare s':>8} {'ratio':>7}"
    known: dict[int, Cost] = {}
    for line in asked:
        cost = best(line.command, cache, times, limit)
        if line.name.startswith("step-") and line.pass_of and not cost.failed:
            known[line.pass_of[0]] = cost
        yield row(line, cost, cache, limit)
    if len(known) > 1:
        yield growth(known)


def row(line: Line, cost: Cost, cache: Path, limit: float) -> str:
    """One line of the table."""
    goal = "" if line.goal is None else f"{line.goal:g}"
    if cost.failed:
        return f"{line.work:62} {'-':>9} {goal:>6}  {cost.failed[:160]}"
    text = f"{line.work:62} {cost.cpu:>9.3f} {goal:>6} {cost.memory / 1e6:>8,.0f}"
    if line.pass_of:
        seconds = float(once(bare(*line.pass_of), cache, limit).said)
        text += f" {seconds:>8.4f} {cost.cpu / seconds:>7.1f}"
    return text + (f"\n  {line.note}" if line.note else "")


def growth(known: dict[int, Cost]) -> str:
    """Exponents of the CPU seconds of a step by its ranks: over all, and between the largest two,
    where start-up no longer counts."""
    counts = [count for count in GROWTH if count in known]

    def exponent(a: int, b: int) -> str:
        found = math.log(known[b].cpu / known[a].cpu) / math.log(b / a)
        return f"{found:.2f} from {a:,} to {b:,} ranks"

    pairs = dict.fromkeys([(counts[0], counts[-1]), (counts[-2], counts[-1])])
    return "CPU seconds grow with exponent " + ", ".join(exponent(*pair) for pair in pairs)


def part(name: str, cache: Path, place: Path, points: int, limit: float) -> Iterator[str]:
    """What one of PARTS has to say."""
    yield f"\n{name}: {PARTS[name]}"
    if name == "sweep":
        yield from sweeps(cache, place, points, limit)
    elif name == "validate":
        yield validated(cache, limit)
    else:
        file = {"engines": "engines.py", "equal": "equal_work.py"}[name]
        cost = once([sys.executable, str(ROOT / "benchmarks" / file)], cache, limit)
        yield cost.failed or cost.said


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="say which lines there are")
    parser.add_argument("--only", default="", help="lines by name, separated by commas")
    parser.add_argument("--best", type=int, default=3, help="runs of which the best counts")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a run may take")
    parser.add_argument("--points", type=int, default=10_000, help="points of the sweep")
    return parser.parse_args()


def main() -> int:
    asked, known = options(), {line.name: line for line in lines()}
    if asked.list:
        print("\n".join(f"{name:16} {line.work}" for name, line in known.items()))
        print("\n".join(f"{name:16} {work}" for name, work in PARTS.items()))
        return 0
    names = asked.only.split(",") if asked.only else [*known, *PARTS]
    if unknown := [name for name in names if name not in known and name not in PARTS]:
        print(f"no line {', '.join(unknown)}; --list says which there are", file=sys.stderr)
        return 2
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "bytecode"
        compiled(cache)
        commands = [known[name] for name in names if name in known]
        for text in table(commands, cache, asked.best, asked.limit) if commands else ():
            print(text, flush=True)
        for name in (name for name in names if name in PARTS):
            for text in part(name, cache, Path(folder), asked.points, asked.limit):
                print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
