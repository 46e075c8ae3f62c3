"""What every reader of data files refuses: tables that do not add up, numbers that are none, keys
given twice, and what is no file."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsim.accuracy import validated
from dpsim.accuracy.collectives.table import NEEDED
from dpsim.core import csvfile, jsonfile
from dpsim.core.files import read_bytes
from dpsim.core.record import Check, Refused
from dpsim.core.units import LEAST, Unit
from dpsim.describe.measured import read_measured
from dpsim.measurements.readers import read_any
from dpsim.measurements.stragglers import analyse
from dpsim.money.price import Price
from dpsim.money.price_list import read_quote
from dpsim.variability import read_numbers


def prices(path: Path) -> object:
    return read_quote(path, Price(file=path.name, row="a", as_of="2026-01-31", source="x"))


#: reader, header and two good rows of each kind of table
TABLES: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "measured": (read_measured, "ranks,step_time_s,source", "8,0.5,x", "16,0.6,y"),
    "step times": (read_any, "step,rank,seconds", "0,0,0.5", "0,1,0.6"),
    "factors": (read_numbers, "factor,what", "1.5,x", "1.25,y"),
    "durations": (read_numbers, "seconds,what", "1.5,x", "1.25,y"),
    "lengths": (read_numbers, "length,count", "100,7", "200,3"),
    "prices": (prices, "instance,devices,usd_per_hour", "a,8,0.5", "b,8,0.75"),
    "stragglers": (lambda path: analyse([path]), "rank,step,seconds", "0,0,1.5", "1,0,1.25"),
    "training runs": (
        validated, "total_gpus,accelerator,model,step_time_s", "1,V100,x,0.5", "2,V100,x,0.6",
    ),
    "collectives": (
        validated, ",".join(NEEDED), "V100,8,1,8,nvlink,NCCL 2.18,all_reduce,1048576,100.5",
        "V100,8,1,8,nvlink,NCCL 2.18,all_reduce,2097152,150.5",
    ),
}  # fmt: skip
#: what is done to header and rows, and what is said about it
DAMAGES: dict[str, tuple[Callable[[str, str, str], str], str]] = {
    "nothing": (lambda head, one, two: "", "x.csv: is empty"),
    "no row": (lambda head, one, two: head, "x.csv:? has "),
    "a cell too many": (lambda head, one, two: f"{head}\n{one},\n{two}", r"x.csv:2: has \d+ cells"),
    "a cell missing": (
        lambda head, one, two: f"{head}\n{one}\n{two.rpartition(',')[0]}", r"x.csv:3: has \d+ cell",
    ),
    "a column twice": (
        lambda head, one, two: f"{head},{head.split(',')[0]}\n{one},1\n{two},1", "x.csv:1: .*twice",
    ),
    "a column without a name": (
        lambda head, one, two: f"{head},\n{one},\n{two},", "x.csv:1: column number .* has no name",
    ),
    "decimal commas": (
        lambda head, one, two: f"{head}\n{one.replace('.5', ',5')}\n{two}",
        r"x.csv:2: has \d+ cells, .* decimal comma\? write \d+\.5, not \d+,5",
    ),
    "decimal commas beside semicolons": (
        lambda head, one, two: f"{head}\n{one}".replace(",", ";").replace(".5", ",5"),
        r"x\.csv:( line )?2: .*,5' has a comma",
    ),
    "an open quote": (lambda head, one, two: f'{head}\n"{one}\n{two}', "x.csv:3: is no CSV"),
    "text behind a quote": (lambda head, one, two: f'{head}\n"1"{one}', "x.csv:2: is no CSV"),
    "a zero byte": (lambda head, one, two: f"{head}\n{one}\0", ".*(binary|zero byte)"),
}  # fmt: skip


#: damages of one row, and tables of measurements of which it is refused alone
RAGGED = ("a cell too many", "a cell missing", "decimal commas")
ROWS_ALONE = ("training runs", "collectives")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", TABLES)
def test_one_reader_refuses_what_does_not_add_up_in_every_table(
    kind: str, damage: str, tmp_path: Path
) -> None:
    read, *text = TABLES[kind]
    spoil, says = DAMAGES[damage]
    if "decimal" in damage and text[1].count(".5") != 1:
        pytest.skip("has no such number")
    path = tmp_path / "x.csv"
    path.write_text(spoil(*text))
    if kind in ROWS_ALONE and damage in RAGGED:
        reasons = [str(row["reason"]) for row in read(path).predictions()]
        assert any(re.match(says.partition(" ")[2], reason) for reason in reasons), reasons
        return
    with pytest.raises(Refused, match=says):
        read(path)


@pytest.mark.parametrize("kind", ["measured", "step times", "lengths", "prices", "stragglers"])
def test_a_row_that_is_there_twice_is_refused_where_rows_tell_themselves_apart(
    kind: str, tmp_path: Path
) -> None:
    read, head, one, two = TABLES[kind]
    path = tmp_path / "x.csv"
    path.write_text(f"{head}\n{one}\n{two}\n{one}\n")
    with pytest.raises(Refused, match=r"x\.csv:4: repeats line 2"):
        read(path)


#: a number in tables of one number per row, and what is said about it
NUMBERS = {
    "": "nothing (where a number is needed|is none of)",
    "1_0": "'1_0' is not a number",
    "\u0661": "is not a number",
    "0x10": "is not a number",
    "nan": "'nan' is not a number",
    "Infinity": "is not a number",
    "1e308": "is not in",
    "1e400": "is not in|is out of range",
    "1e99999999999999999999": "is out of range",
    "1e-320": "nearer to 0 than 1e-24|is not in",
    "1e-30": "nearer to 0 than 1e-24|is not in",
    "-1": "-1( s)? is not in",
    "1 000": "is not a number",
    "1,000.5": "has a comma",
    "9" * 70: "is not a number|is not in",
}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("kind", ["measured", "step times", "factors", "stragglers"])
def test_one_parser_reads_the_numbers_of_every_table(
    kind: str, number: str, tmp_path: Path
) -> None:
    read, head, one, two = TABLES[kind]
    good = "0.5" if "0.5" in one else "1.5"
    path = tmp_path / "x.csv"
    path.write_text(f"{head}\n{two}\n{one}\n".replace(",", ";").replace(good, number))
    with pytest.raises(
        Refused, match=rf"^(variability: )?x\.csv: ?(line )?3: \w+: .*({NUMBERS[number]})"
    ):
        read(path)


@pytest.mark.parametrize("number", ["8", "8.0", "8.", "+8", "0.8e1", "8E+0", " 8 "])
def test_numbers_are_read_as_spreadsheets_write_them(number: str) -> None:
    assert Check(1, 10).bare(number) == 8
    assert Unit("s").bare(number, "us") == 8e-6


def test_what_is_too_near_to_0_is_refused_and_0_is_not() -> None:
    assert Unit("s").bare("0") == 0.0
    with pytest.raises(ValueError, match="too near to be meant"):
        Unit("s").take(f"{LEAST / 2} s", file=True)


def test_a_table_that_would_fill_the_memory_is_refused_before(tmp_path: Path) -> None:
    """60,000 ranks and steps in as many rows: a dense table of them takes 27 GiB."""
    path = tmp_path / "x.csv"
    path.write_text("rank,step,seconds\n" + "".join(f"{k},{k},1\n" for k in range(60_000)))
    with pytest.raises(Refused, match="no step with a time of every rank"):
        analyse([path])
    with pytest.raises(Refused, match=r"x\.csv:5: more than 3 rows"):
        list(csvfile.read(path, 10**9, 3))
    with pytest.raises(Refused, match="is larger than 0 MB"):
        csvfile.read(path, 1000)


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": [{"b": 1, "b": 1}]}', '{"a": NaN}', "[" * 10**5, '{"a"']
)
def test_json_is_read_strictly(text: str) -> None:
    with pytest.raises(Refused):
        jsonfile.loads(text)


# -- what is no file ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_folders_and_devices_are_refused_at_once(kind: str, tmp_path: Path) -> None:
    read = TABLES[kind][0]
    for path, says in (
        (tmp_path, "is a folder"),
        (Path("/dev/zero"), "is a device or socket"),
        (tmp_path / "none.csv", "no such file"),
    ):
        with pytest.raises(Refused, match=says):
            read(path)


@pytest.mark.parametrize("kind", TABLES)
def test_a_pipe_is_read_to_its_end_however_often_it_is_opened(kind: str, tmp_path: Path) -> None:
    """As the shell's <( ) gives them: readers look at a file before they read it."""
    read, head, one, two = TABLES[kind]
    text = f"{head}\n{one}\n{two}\n"
    (tmp_path / "x.csv").write_text(text)
    reader, writer = os.pipe()
    thread = threading.Thread(target=_write, args=(writer, text))
    thread.start()
    try:
        piped = read(Path(f"/dev/fd/{reader}"))
    finally:
        os.close(reader)
        thread.join()
    assert type(piped) is type(read(tmp_path / "x.csv"))


def _write(pipe: int, text: str) -> None:
    with os.fdopen(pipe, "w") as file:
        file.write(text)


def test_a_pipe_is_read_to_the_size_limit_only(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x" * 2000)
    with pytest.raises(Refused, match="is larger than 0 MB"):
        read_bytes(Path(f"/dev/fd/{reader}"), 1000)
    os.close(reader)
    os.close(writer)
    os.mkfifo(tmp_path / "silent")
    with pytest.raises(Refused, match="is a pipe that holds nothing"):
        read_bytes(tmp_path / "silent", 1000)
