"""A campaign against the tests: bugs are planted one by one, and the tests of their area must see.

    python tests/campaigns/mutants.py [--count 60] [--seed 1] [--jobs 1] [--log FILE]

Bugs are drawn by the seed from what can be changed in the source: comparisons, arithmetic, minimum
and maximum, rounding, constants, units, indices, terms of a sum, conditions.  Bugs that once lived
are planted too.  What was tried stands in the log, and the same command goes on behind it.  A bug
that no test can see, as it changes no answer, is listed in `EQUIVALENT` with its reason.  Prints
what survived; exits with 1 where anything did.  It takes an hour or two.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
#: area -> where its source lies below dpsim/, and the tests that answer for it, quick ones first
AREAS = {
    "engines": ("play", "engines invariants independent network_limits sampler contention_program"),
    "strategies": (
        "compile",
        "ddp fsdp fsdp1 horovod zero megatron data_parallel tensorflow jax wrappers schedules "
        "pipeline compression host torch_orders invariants golden",
    ),
    "collectives": ("collectives", "collectives volumes ring_order nccl engines mpi golden"),
    "backends": ("backends", "nccl gloo mpi ideal_backends parameter_server calibration golden"),
    "machines": ("machines", "machines fabrics platforms ecmp importing network_limits golden"),
    "planning": ("planning", "plan sweep compare"),
    "memory": ("models", "memory models zero prediction golden"),
    "money": ("money", "cost compare golden"),
    "variability": ("variability", "variability sampler startup golden"),
    "readers": (
        "measurements",
        "calibration importing measure measuring_programs stragglers record check_nccl",
    ),
    "cases": ("cases", "prediction variants memory variability pipeline golden"),
    "predict": ("predict", "prediction uncertainty blame cures laws answer report golden"),
    "report": ("report", "report pipeline_picture trace cli sweep plan compare golden"),
    "checks": ("checks", "check_nccl collective_command"),
}
#: area, file, what stands there, what is planted: bugs that no test saw once
ONCE = (
    (
        "strategies",
        "compile/strategies/horovod.py",
        "ceil(log2(job.ranks))",
        "int(log2(job.ranks))",
    ),
    (
        "readers",
        "measurements/importing/nccl_xml.py",
        "min(b for b in known if b is not None)",
        "max(b for b in known if b is not None)",
    ),
    (
        "strategies",
        "compile/compression/_sixteen.py",
        "wire if wire < payload.bytes",
        "wire if True",
    ),
    (
        "strategies",
        "compile/compression/_sixteen.py",
        "(payload.bytes + wire) / 2 if wire < payload.bytes",
        "(payload.bytes + wire) / 2 if True",
    ),
    ("predict", "predict/explain.py", "{rank: 2 * samples for", "{rank: samples for"),
)
#: bugs that change no answer: (file, line of source as it stands, planted) -> why
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "planning/search.py",
        "0.2 * (b - a) ** 2 / whole",
        "(0.2 * (b - a) ** 2 * whole)",
    ): "how far a guess is moved: the bracket holds the answer whatever it is",
    ("play/vectorised/role.py", "op.delay", "True"): "a delay of 0 is checked, and is 0",
}
#: seconds after which the tests count as having seen that it hangs
LIMIT = 900
_SWAPS: dict[type[Any], type[Any]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "ceil": "floor", "floor": "ceil", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A bug: the text from `start` to `end` (offsets in bytes) of `file` becomes `planted`."""

    area: str
    file: str
    line: int
    start: int
    end: int
    was: str
    planted: str

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line}: {self.was} -> {self.planted}"


# -- what can be planted --------------------------------------------------------------------------


def mutants_of(area: str, path: Path) -> Iterator[Mutant]:
    """All bugs that can be planted in a module, apart from its annotations and docstrings."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _playing(ast.parse(source)):
        for place, planted in _changes(node):
            start = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            was = source[start:end].decode()
            if planted != was and "\n" not in was:
                file = path.relative_to(ROOT / "dpsim").as_posix()
                yield Mutant(area, file, place.lineno, start, end, was, planted)


def _playing(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes inside functions that are run: no annotations, messages or assertions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                yield from _inside(statement)
        else:
            yield from _playing(node)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from _inside(node.value)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _inside(child)


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """What one node can become: the place, and the text to plant."""
    if isinstance(node, ast.If | ast.IfExp):
        yield node.test, "True"
        yield node.test, "False"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Call):
        yield from _called(node)
    elif isinstance(node, ast.Subscript) and ast.unparse(node.slice) in ("0", "-1"):
        yield node.slice, "-1" if ast.unparse(node.slice) == "0" else "0"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value:
        yield from ((node, planted) for planted in _numbers(node.value))
    else:
        yield from _swapped(node)


def _swapped(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Other operators, and sums that forget a term."""
    made: ast.expr | None = None
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SWAPS:
        made = ast.Compare(node.left, [_SWAPS[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
        made = ast.BinOp(node.left, _SWAPS[type(node.op)](), node.right)
        if isinstance(node.op, ast.Add | ast.Sub):
            yield node, f"({ast.unparse(node.left)})"
    elif isinstance(node, ast.BoolOp):
        made = ast.BoolOp(_SWAPS[type(node.op)](), node.values)
    if made is not None and isinstance(node, ast.expr):
        yield node, f"({ast.unparse(made)})"


def _numbers(value: float) -> Iterator[str]:
    """Another constant; a binary unit for a decimal one."""
    yield repr(value + 1 if type(value) is int and value < 10 else value * 2)
    units = {1e6: "2**20", 1e9: "2**30", 1e12: "2**40"}
    if value in units:
        yield units[value]


def _called(node: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    if name in _CALLS:
        front = ast.unparse(node.func).removesuffix(name)
        yield node.func, front + _CALLS[name]


# -- drawing and planting -------------------------------------------------------------------------


def drawn(count: int, seed: int) -> list[Mutant]:
    """`count` bugs, as many from each area as from another, and those that once lived."""
    dice = random.Random(seed)
    found: list[Mutant] = []
    pools = {
        area: [m for path in sorted((ROOT / "dpsim" / below).rglob("*.py")) for m in
               mutants_of(area, path)]
        for area, (below, _) in AREAS.items()
    }  # fmt: skip
    areas = list(AREAS)
    for number in range(count):
        area = areas[number % len(areas)]
        found.append(pools[area].pop(dice.randrange(len(pools[area]))))
    return [*_once(), *found]


def _once() -> Iterator[Mutant]:
    for area, file, was, planted in ONCE:
        source = (ROOT / "dpsim" / file).read_bytes()
        start = source.find(was.encode())
        if start < 0:
            print(f"    {file}: {was!r} is not there any more")
            continue
        line = source[:start].count(b"\n") + 1
        yield Mutant(area, file, line, start, start + len(was), was, planted)


def killed_by(mutant: Mutant, copy: Path) -> str:
    """The test that sees the bug; empty where none of its area does."""
    place = copy / "dpsim" / mutant.file
    source = (ROOT / "dpsim" / mutant.file).read_bytes()
    place.write_bytes(source[: mutant.start] + mutant.planted.encode() + source[mutant.end :])
    try:
        return _seen(mutant, copy)
    finally:
        place.write_bytes(source)


def _seen(mutant: Mutant, copy: Path) -> str:
    tests = [f"tests/test_{name}.py" for name in AREAS[mutant.area][1].split()]
    command = [
        sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider",
        "-W", "ignore", "--no-header", "--tb=no", *tests,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return "it hangs"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (lines or [f"exit code {done.returncode}"])[0][:200] if done.returncode else ""


# -- the campaign ---------------------------------------------------------------------------------


def _tried(log: Path) -> dict[str, str]:
    """What the log has: key -> the test that saw it."""
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    records = [json.loads(line) for line in lines]
    return {record["key"]: record["seen"] for record in records}


def _copied(folder: Path) -> Path:
    """A checkout of its own: the package as files, all else as links."""
    copy = Path(tempfile.mkdtemp(prefix="tree-", dir=folder))
    for path in ROOT.iterdir():
        if path.name in ("dpsim",):
            shutil.copytree(path, copy / "dpsim", ignore=shutil.ignore_patterns("__pycache__"))
        elif path.name not in (".git", ".venv", "out"):
            (copy / path.name).symlink_to(path)
    return copy


def campaign(mutants: list[Mutant], log: Path, jobs: int) -> dict[str, str]:
    """Plant every bug that the log does not have; returns all of them with who saw them."""
    seen = _tried(log)
    with tempfile.TemporaryDirectory() as folder:
        copies = [_copied(Path(folder)) for _ in range(jobs)]

        def work(mutant: Mutant) -> None:
            copy = copies.pop()
            found = killed_by(mutant, copy)
            copies.append(copy)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**asdict(mutant), "key": mutant.key, "seen": found}) + "\n")
            seen[mutant.key] = found
            print(
                f"  {mutant.area:12} {mutant.key}\n               {found or 'SURVIVED'}", flush=True
            )

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(work, [mutant for mutant in mutants if mutant.key not in seen]))
    return {mutant.key: seen[mutant.key] for mutant in mutants}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="bugs that are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="trees that are tried at once")
    parser.add_argument("--log", type=Path, default=Path("mutants.jsonl"))
    given = parser.parse_args()
    planted = [
        mutant
        for mutant in drawn(given.count, given.seed)
        if (mutant.file, mutant.was, mutant.planted) not in EQUIVALENT
    ]
    seen = campaign(planted, given.log, given.jobs)
    survived = [key for key, by in seen.items() if not by]
    print(f"{len(seen)} bugs planted (seed {given.seed}), {len(survived)} survived")
    for key in survived:
        print(f"    {key}")
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main())
