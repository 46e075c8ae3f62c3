"""A campaign of damaged files: mutations of good files of every kind, and what comes of them.

    python tests/campaigns/damage.py [--seed 1] [--limit 6000]

A damaged file must be refused (exit code 2), be read with a warning, or be read as before.  Where
it is read silently as something else, the mutation is judged: could the file itself have told (a
checksum, a row of other length, a number that its neighbours contradict), or is what it says now as
good as what it said?  Only the first is a finding.  Mutation k of a seed is the same however many
are tried, so a finding is tried again by its number: --first K --limit 1.  Prints counts and
findings; exits with 1 where there is one.
"""

from __future__ import annotations

import argparse
import collections
import csv
import math
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dpsim.accuracy.collectives.table import read_collectives
from dpsim.accuracy.training.table import read_table
from dpsim.backends.curves import file as calibration
from dpsim.cli import _kind
from dpsim.core import yamlfile
from dpsim.core.places import data_folder
from dpsim.describe.measured import read_measured
from dpsim.describe.scenario import load
from dpsim.machines.machine import load_machine
from dpsim.measurements.readers import read_any
from dpsim.measurements.stragglers import analyse
from dpsim.money.price import Price
from dpsim.money.price_list import read_quote
from dpsim.planning import log
from dpsim.variability import read_numbers

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"


class Kind(NamedTuple):
    """A kind of file: good bytes, its name, what reads it, and which redundancy it has.

    checks   "all": any change shows (digests); "cells": rows and columns; "sums": rows of numbers
             that follow from each other too; "": syntax alone
    """

    name: str
    file: str
    good: bytes
    read: Callable[[Path], Any]
    checks: str


def kinds() -> list[Kind]:
    samples = DATA / "calibration"
    nccl = "new-layout-h100-8gpu-allreduce-nccl-tests-extra-header.txt"
    osu = "osu-allreduce-gke-cpu-4node.out"
    measured = "ranks,step_time_s,source\n" + "".join(
        f"{2**k},{0.5 + k / 100},log\n" for k in range(9)
    )
    steps = "step,rank,seconds\n" + "".join(
        f"{s},{r},{0.5 + s / 100 + r / 1000:.4f}\n" for s in range(12) for r in range(4)
    )
    lengths = "length,count\n" + "".join(f"{100 * k},{k * 7 + 1}\n" for k in range(1, 20))
    prices = "instance,devices,usd_per_hour,as_of,source\n" + "".join(
        f"box{k},8,{20 + k}.50,2026-01-31,list\n" for k in range(9)
    )
    header = {"format": 1, "id": "x" * 64, "parts": {}, "points": 20}
    records = [header, *({"of": "x" * 16, "n": n, "point": {"a": n / 7}} for n in range(20))]

    def price(path: Path) -> object:
        return read_quote(path, Price(file=path.name, row="box3"))

    def found(path: Path) -> object:
        made = read_any(path)
        return replace(made, source="", notes=())

    def plain(path: Path) -> object:
        made = log.parse(path.read_bytes())
        if made.damage or made.torn:
            raise log.Damaged(str(made.damage))
        numbers = sorted(int(record.get("n", -1)) for record in made.records[1:])
        if numbers != list(range(header["points"])):
            raise log.Damaged("points are played again, or are there twice")  # as dpsim sweep says
        return sorted(made.records, key=str)

    def tabled(read: Callable[[Path], Any]) -> Callable[[Path], object]:
        return lambda path: replace(read(path), name="")

    def of_scenario(path: Path) -> object:
        return load(yamlfile.load(path)[0], path.parent, "x").points

    published, given = ROOT / "validation" / "published", data_folder("scenarios").parent
    runs, sweep = _head(published / "training.csv"), b"".join(map(log.frame, records))
    timed, bundled = _head(published / "collectives.csv"), calibration.folder() / "h100-8gpu.yaml"
    machine, scenario = (
        given / "topologies" / "dgx-a100.yaml",
        given / "scenarios" / "two-3090.yaml",
    )

    def slow(path: Path) -> object:
        return analyse([path]).document()

    def of_machine(path: Path) -> object:
        return load_machine(path.name, path.parent)

    return [
        Kind("nccl-tests", "x.txt", (samples / nccl).read_bytes(), found, "sums"),
        Kind("osu", "x.out", _head(samples / osu, 50), found, "cells"),
        Kind("measured", "x.csv", measured.encode(), read_measured, "cells"),
        Kind("step times", "x.csv", steps.encode(), found, "cells"),
        Kind("stragglers", "x.csv", steps.encode(), slow, "cells"),
        Kind("lengths", "x.csv", lengths.encode(), read_numbers, "cells"),
        Kind("prices", "x.csv", prices.encode(), price, "cells"),
        Kind("training runs", "x.csv", runs, tabled(read_table), "cells"),
        Kind("collectives", "x.csv", timed, tabled(read_collectives), "cells"),
        Kind("calibration", "x.yaml", bundled.read_bytes(), calibration.load, "all"),
        Kind("sweep's log", "sweep.log", sweep, plain, "all"),
        Kind("machine", "x.yaml", machine.read_bytes(), of_machine, ""),
        Kind("scenario", "x.yaml", scenario.read_bytes(), of_scenario, ""),
    ]


def _head(path: Path, lines: int = 13) -> bytes:
    return b"".join(path.read_bytes().splitlines(keepends=True)[:lines])


# -- mutations ------------------------------------------------------------------------------------

Mutation = Callable[[bytes, random.Random], bytes]


def _bit(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ 1 << dice.randrange(8)]) + raw[place + 1 :]


def _byte(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw))
    return raw[:place] + bytes([dice.randrange(256)]) + raw[place + 1 :]


def _digit(raw: bytes, dice: random.Random) -> bytes:
    place = dice.choice([found.start() for found in re.finditer(rb"[0-9]", raw)])
    return raw[:place] + str(dice.randrange(10)).encode() + raw[place + 1 :]


def _cut(raw: bytes, dice: random.Random) -> bytes:
    return raw[: dice.randrange(len(raw))]


def _zeros(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw))
    return raw[:place] + bytes(min(64, len(raw) - place)) + raw[place + 64 :]


def _hole(raw: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(raw))
    return raw[:place] + raw[place + dice.randrange(1, 40) :]


def _line_twice(raw: bytes, dice: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    place = dice.randrange(len(lines))
    return b"".join([*lines[: place + 1], *lines[place:]])


def _line_gone(raw: bytes, dice: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    place = dice.randrange(len(lines))
    return b"".join([*lines[:place], *lines[place + 1 :]])


def _lines_swapped(raw: bytes, dice: random.Random) -> bytes:
    lines = raw.splitlines(keepends=True)
    one, two = dice.randrange(len(lines)), dice.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def _comma(raw: bytes, dice: random.Random) -> bytes:
    points = [found.start() + 1 for found in re.finditer(rb"\d\.\d", raw)] or [0]
    place = dice.choice(points)
    return raw[:place] + b"," + raw[place + 1 :]


def _junk(raw: bytes, dice: random.Random) -> bytes:
    return raw + dice.randbytes(dice.randrange(1, 60))


MUTATIONS: dict[str, Mutation] = {
    "a bit flipped": _bit,
    "another byte": _byte,
    "another digit": _digit,
    "cut short": _cut,
    "zeros": _zeros,
    "a hole": _hole,
    "a line twice": _line_twice,
    "a line gone": _line_gone,
    "lines swapped": _lines_swapped,
    "a decimal comma": _comma,
    "junk at the end": _junk,
}


class Outcome(NamedTuple):
    """What came of a mutation: "refused", "warned", "same", "silent" or "detectable"."""

    what: str
    why: str = ""


def outcome(kind: Kind, raw: bytes, folder: Path, before: Any) -> Outcome:
    path = folder / kind.file
    path.write_bytes(raw)
    try:
        after = kind.read(path)
    except Exception as error:
        if _kind(error)[0] == 2:
            return Outcome("refused")
        return Outcome("detectable", f"{type(error).__name__}: {str(error)[:120]}")
    if repr(after) == repr(before):
        return Outcome("same")
    if set(getattr(after, "warnings", ())) - set(getattr(before, "warnings", ())):
        return Outcome("warned")
    why = redundant(kind, raw)
    return Outcome("detectable", why) if why else Outcome("silent")


def redundant(kind: Kind, raw: bytes) -> str:
    """What in the file contradicts the mutation; "" where nothing does.

    The judge reads the bytes with its own few lines, not with the reader that it judges.
    """
    if kind.checks == "all":
        return "the digest does not match"
    if b"\0" in raw:
        return "zero bytes"
    lines = raw.decode("utf-8", "replace").replace("\r", "\n").split("\n")
    if kind.checks == "cells" and kind.file.endswith(".csv"):
        return _table_contradicts(lines, kind.good.decode().splitlines())
    if kind.checks == "sums":
        return _nccl_contradicts(lines)
    return ""


def _table_contradicts(lines: list[str], good: list[str]) -> str:
    rows = [line.split(",") for line in lines if line.strip() and '"' not in line]
    if '"' not in "".join(lines) and len({len(row) for row in rows}) > 1:
        return "rows of different length"
    if len(set(rows[0])) != len(rows[0]) or not all(cell.strip() for cell in rows[0]):
        return "columns without a name of their own"
    if why := _numbers_contradict(lines):
        return why
    strange = {cell for row in rows for cell in row if _ODD.fullmatch(cell.strip())}
    new = strange - {cell for line in good for cell in line.split(",")}
    return f"{min(new)} is no number" if new else ""


def _numbers_contradict(lines: list[str]) -> str:
    """Size, time and bandwidth, or throughput, step time and batch, that are 5 % off."""
    for row in csv.DictReader(lines):

        def number(name: str, row: dict[str, str] = row) -> float:
            try:
                return float(row.get(name) or "nan")
            except (TypeError, ValueError):
                return math.nan

        rate, size, time = number("algbw_GBps"), number("size_bytes"), number("time_us")
        if rate > 1 and time > 0 and abs(size / time / 1e3 / rate - 1) > 0.05:
            return "size, time and bandwidth"
        batch, second = number("global_batch"), number("step_time_s")
        tokens = batch * number("seq_len")
        done = number("throughput_global") * second
        if (
            done > 0
            and batch > 0
            and abs(done / batch - 1) > 0.05
            and not abs(done / tokens - 1) < 0.05
        ):
            return "throughput, step time and batch"
        if number("total_gpus") > number("nodes") * number("gpus_per_node"):
            return "GPUs, nodes and GPUs per node"
    return ""


#: what Python and spreadsheets take for a number, and is none in a data file
_ODD = re.compile(r"\d[\d.]*_[\d._]*|[\d.]*[^\W\d_a-zA-Z][\d.]*|nan|inf|-?infinity", re.IGNORECASE)


def _nccl_contradicts(lines: list[str]) -> str:
    """Rows whose size is not count x 4 bytes, or whose bandwidths do not follow, by 2 %."""
    for line in lines:
        cells = line.split()
        if len(cells) != 13 or not (cells[0].isdigit() and cells[1].isdigit()):
            continue
        size, count = int(cells[0]), int(cells[1])
        if cells[2] == "float" and size != 4 * count:
            return "size and count"
        for k in (5, 9):
            try:
                time, rate, bus = (float(cell) for cell in cells[k : k + 3])
            except ValueError:
                return "a cell that is no number"
            if rate > 1 and abs(size / time / 1e3 - rate) > 0.02 * rate:
                return "size, time and bandwidth"
            if rate > 1 and abs(bus - 1.75 * rate) > 0.02 * bus:
                return "both bandwidths"
    return ""


def mutations(
    seed: int, among: list[Kind], first: int, limit: int
) -> Iterator[tuple[int, Kind, str, bytes]]:
    for number in range(first, first + limit):
        dice = random.Random(f"{seed} {number}")
        kind, name = dice.choice(among), dice.choice(list(MUTATIONS))
        yield number, kind, name, MUTATIONS[name](kind.good, dice)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--limit", type=int, default=6000)
    parser.add_argument("--silent", action="store_true", help="list what nothing could tell")
    asked = parser.parse_args()
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    findings = 0
    with tempfile.TemporaryDirectory() as name:
        folder, among, before = Path(name), kinds(), {}
        for kind in among:
            (folder / kind.file).write_bytes(kind.good)
            before[kind.name] = kind.read(folder / kind.file)
        for number, kind, mutation, raw in mutations(asked.seed, among, asked.first, asked.limit):
            found = outcome(kind, raw, folder, before[kind.name])
            counts[kind.name][found.what] += 1
            if found.what == "detectable":
                findings += 1
                print(f"{number}: {kind.name}: {mutation}: {found.why}", flush=True)
            elif found.what == "silent" and asked.silent:
                print(f"{number}: {kind.name}: {mutation}: silent", flush=True)
    for name, count in sorted(counts.items()):
        told = ", ".join(f"{what} {number:,}" for what, number in sorted(count.items()))
        print(f"{name:14} {told}")
    print(f"seed {asked.seed}: {asked.limit:,} mutations, {findings:,} detectable and not noticed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
