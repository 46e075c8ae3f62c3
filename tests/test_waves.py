"""What products take longer for tiles that fill no whole wave (A88)."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpsim.core.record import Refused
from dpsim.machines.machine import load_device
from dpsim.models import waves
from dpsim.models.rates import NARROW, WIDE, reached

#: products in bf16, of 512 rows and columns and sums of 2,048 elements and more: ai-dynamo/
#: aiconfigurator at 095f58a51c4c (Apache-2.0), every row with its file there
MEASURED = Path(__file__).parent / "data" / "products.csv"


def apart(device: str, *, told: bool) -> float:
    """The spread of what measured products of `device` take over their FLOP and sums, as a
    logarithm; `told`: and over what their tiles leave idle.  Those of less than 20 us, most of
    which is a launch, are left out."""
    one, found = load_device(device), []
    for row in csv.DictReader(MEASURED.read_text("utf-8").splitlines()):
        if row["device"] == device and float(row["microseconds"]) >= 20.0:
            rows, columns, length = (int(row[name]) for name in ("rows", "columns", "sum"))
            work = rows * columns * (length + NARROW[one.generation])
            idle = waves.longer(one, rows, columns) if told else 1.0
            found.append(math.log(float(row["microseconds"]) / (work * idle)))
    return float(np.std(found))


@pytest.mark.parametrize("device", ["a100-sxm-80gb", "h100-sxm", "l40s", "b200"])
def test_measured_products_differ_less_by_what_tiles_leave_idle(device: str) -> None:
    assert apart(device, told=True) < 0.85 * apart(device, told=False)


def test_a_row_beyond_a_whole_wave_costs_most_of_another() -> None:
    """27,648 rows and 128 columns are 108 tiles of 256 x 128, one for each multiprocessor of an
    A100; a row more is a second wave of one tile, or a finer cut: halves of a tile are 217, three
    half waves, at 0.97 of the rate."""
    a100 = load_device("a100-sxm-80gb")
    full, more = (waves.longer(a100, rows, 128) for rows in (27_648, 27_649))
    assert more / full == pytest.approx((3 * 108 * 128 / 27_649) ** 0.62 / 0.97)
    assert full < 1.0 < more  # 8,192 x 8,192 leave 4 of 19 waves' 2,052 tiles idle
    assert waves.longer(a100, 8192, 8192) == 1.0


def test_nothing_is_idle_where_multiprocessors_are_not_known() -> None:
    unknown = replace(load_device("a100-sxm-80gb"), multiprocessors=0)
    assert waves.longer(unknown, 512, 512) == 1.0
    assert waves.longer(load_device("mi300x"), 512, 512) == 1.0
    assert waves.longer(load_device("h100-sxm"), 512, 512) > 1.1


@pytest.mark.parametrize("count", [-1, 1025, 10**9])
def test_no_device_has_so_many_multiprocessors(count: int) -> None:
    with pytest.raises(Refused, match=r"multiprocessors: .*1,?024"):
        replace(load_device("a100-sxm-80gb"), multiprocessors=count)


#: rows, columns, elements of a sum and microseconds of products in bf16 as vLLM runs them
#: (casys-kaist/LLMServingSim at 5daddb21, profiles of kernels; in bursts)
BURSTS = {
    "rtx4090": [(2048, 4096, 14336, 1459.5), (2000, 28672, 4096, 2893.8)],
    "rtx3090": [(2000, 14336, 4096, 3580.9), (1536, 4096, 4096, 776.28)],
    "rtx-a6000": [(2048, 14336, 4096, 2175.3), (1536, 4096, 14336, 1649.1)],
    "rtx-pro-6000": [(2048, 5120, 25600, 1433.7), (1536, 28672, 4096, 934.29)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("device", "rows", "columns", "summed", "microseconds"),
    [(device, *one) for device, bursts in BURSTS.items() for one in bursts],
)
def test_products_in_training_take_up_to_a_third_longer_than_in_bursts(
    device: str, rows: int, columns: int, summed: int, microseconds: float
) -> None:
    """GeForce boards, whose tensor cores add up at half the rate, reach nearly all of it."""
    board = load_device(device)
    share, half = reached(board, "bf16")
    flop = 2.0 * rows * columns * summed / (board.peak_for("bf16") * share)
    narrow = (1.0 + half / summed) / (1.0 + half / WIDE)
    took = flop * narrow * waves.longer(board, rows, columns)
    assert 1.0 <= took / (microseconds * 1e-6) <= 1.34
