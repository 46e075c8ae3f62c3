"""Malformed command lines: exit code 2, one sentence, nothing on stdout, no file left behind."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from test_malformed import BOX, GOOD, check, text

Cli = Callable[..., tuple[int, str, str]]

#: files that some commands are given, and that none of them can read
BAD_FILES = {
    "empty.csv": b"",
    "noise.csv": bytes(range(256)),
    "nan.csv": b"rank,step,seconds\n0,0,nan\n",
    "negative.csv": b"rank,step,seconds\n0,0,1\n1,0,-1\n",
    "columns.csv": b"a,b\n1,2\n",
    "zero.csv": b"ranks,step_time_s\n1,0\n",
    "latin.csv": "ranks,step_time_s\n1,0.1\n2,é\n".encode("latin-1"),
    "events.json": b'{"traceEvents": [{"ph": "X", "ts": "a", "dur": -1, "name": 3}]}',
    "cut.json": b'{"traceEvents": [',
    "deep.json": b"[" * 100_000 + b"]" * 100_000,
    "cut.gz": gzip.compress(bytes(range(256)) * 100)[:200],
    "damaged.json.gz": gzip.compress(b'{"traceEvents": []}')[:10] + b"\xff" * 30,
    "nccl.txt": b"# size count\n 8 2 float sum\n",
    "dtd.xml": b"<!DOCTYPE x><system/>",
    "empty.xml": b"<system/>",
    "matrix.txt": b"\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tQQ\tX\n",
}
READERS = ("calibrate", "import", "stragglers", "validate", "check-nccl --cluster dgx-a100")

# what follows `dpsim`, what the message says
LINES: list[tuple[str, str]] = [
    ("rum x.yaml", "No such command 'rum'"),
    ("run", "Missing argument"),
    ("run x.yaml y.yaml", "unexpected extra argument"),
    ("run x.yaml --jsn", "No such option"),
    ("run x.yaml --set", "requires an argument"),
    ("run no.yaml", "there is no such file"),
    (f"run {'x' * 300}", "is no name of a file"),
    ("explain no.yaml -o out", "there is no such file"),
    ("explain x.yaml --trace t.txt -o out", "a name ending in .json"),
    ("explain x.yaml --set cluster.rank=3 -o out", "did you mean 'ranks'?"),
    ("sweep x.yaml --grid cluster.ranks -o out", "--grid"),
    ("sweep x.yaml --grid cluster.ranks= -o out", "--grid"),
    ("sweep x.yaml --grid cluster.rank=1,2 -o out", "'ranks'?"),
    ("sweep x.yaml --grid cluster.ranks=8:1:x2 -o out", "--grid"),
    ("sweep x.yaml --grid cluster.ranks=1:8:x1 -o out", "--grid"),
    ("sweep x.yaml --grid cluster.ranks=1:1e9:1 -o out", "--grid"),
    ("sweep x.yaml --grid cluster.ranks=1,2 --shard 3/2 -o out", "--shard 3/2"),
    ("sweep x.yaml --shard 1/2", "--out"),
    ("sweep x.yaml --plot step_time_s", "--out"),
    ("sweep x.yaml --jobs -1", "--jobs"),
    ("sweep x.yaml box.yaml", "one scenario"),
    ("sweep --merge no1 no2 -o out", "no1"),
    ("plan x.yaml", "--require"),
    ("plan x.yaml --require", "requires an argument"),
    ("plan x.yaml --require efficiency --vary cluster.ranks=1:8 -o out", "--require"),
    ("plan x.yaml --require efficency>=0.9 --vary cluster.ranks=1:8 -o out", "efficiency"),
    ("plan x.yaml --require efficiency>=nan --vary cluster.ranks=1:8 -o out", "--require"),
    ("plan x.yaml --require step_time_s<=3GB --vary cluster.ranks=1:8 -o out", "--require"),
    ("plan x.yaml --require step_time_s<=1s --vary cluster.rank=1:8 -o out", "'ranks'?"),
    ("plan x.yaml --require step_time_s<=1s --vary cluster.ranks=8:1 -o out", "--vary"),
    ("plan x.yaml --require step_time_s<=1s --vary collective.latency=1:2 -o out", "unit"),
    ("plan box.yaml --deadline 30 -o out", "--deadline"),
    ("plan box.yaml --budget 5eur -o out", "--budget"),
    ("plan box.yaml --minimise happiness -o out", "--minimise"),
    ("plan x.yaml --largest title -o out", "--largest"),
    ("plan x.yaml --tune strategy.no -o out", "--tune"),
    ("plan x.yaml --tune strategy.no_sync --largest batch.per_device", "one at a time"),
    ("plan x.yaml --largest batch.per_device --relative-to cluster.ranks -o out", "--relative-to"),
    ("compare", "Missing argument"),
    ("compare x.yaml no.yaml -o out", "there is no such file"),
    ("compare x.yaml --by beauty -o out", "--by beauty: is none of"),
    ("compare x.yaml --ranks 0 -o out", "--ranks"),
    ("compare x.yaml --draws 1 -o out", "--draws"),
    ("compare x.yaml --vary strategy.kind=ddp,dpp -o out", "'ddp'?"),
    ("compare x.yaml --vary strategy.kind -o out", "--vary"),
    ("collective all_redcue --cluster dgx-a100 -o out", "all_reduce"),
    ("collective all_reduce", "--cluster"),
    ("collective all_reduce --cluster dgx-a10 -o out", "dgx-a100"),
    ("collective all_reduce --cluster dgx-a100 --sizes 8GiB:1KiB -o out", "--sizes"),
    ("collective all_reduce --cluster dgx-a100 --sizes 1:2 -o out", "--sizes"),
    ("collective all_reduce --cluster dgx-a100 --factor 0 -o out", "--factor"),
    ("collective all_reduce --cluster dgx-a100 --nodes 0 -o out", "--nodes"),
    ("collective all_reduce --cluster dgx-a100 --nccl 1.0 -o out", "--nccl"),
    ("collective all_reduce --cluster dgx-a100 --algorithm rnig -o out", "'ring'"),
    ("collective all_reduce --cluster dgx-a100 --protocol ll256 -o out", "--protocol"),
    ("collective all_reduce --cluster dgx-a100 --groups 3 -o out", "3"),
    ("collective all_reduce --cluster dgx-a100 --routing hash -o out", "hash"),
    ("collective all_reduce --cluster dgx-a100 --compare no.txt -o out", "no.txt"),
    ("check-nccl no.txt --cluster dgx-a100", "no.txt"),
    ("check-nccl nccl.txt", "--cluster"),
    ("calibrate no.txt -o out.yaml", "no.txt"),
    ("calibrate zero.csv --ranks 0 -o out.yaml", "--ranks"),
    ("calibrate deep.json -o out.yaml", "deep.json: is nested too deeply"),
    ("import deep.json -o out.yaml", "deep.json: is nested too deeply"),
    ("import cut.gz -o out.yaml", "cut.gz: is gzip that was cut short"),
    ("import damaged.json.gz -o out.yaml", "damaged.json.gz: is damaged gzip"),
    ("run cut.gz", "cut.gz: is compressed (gzip), and is read unpacked"),
    ("validate cut.gz", "cut.gz: is compressed (gzip), and is read unpacked"),
    ("show deep.json", "deep.json: is nested too deeply"),
    ("import no.xml -o out.yaml", "no.xml"),
    ("import empty.xml --device abacus -o out.yaml", ""),
    ("import empty.xml --like no-such -o out.yaml", ""),
    ("stragglers no.csv", "no.csv"),
    ("stragglers nan.csv --threshold fast", "--threshold"),
    ("stragglers nan.csv --threshold -5", "threshold of -5"),
    ("validate no.csv -o out", "no.csv"),
    ("validate columns.csv --calibrate every:0 -o out", ""),
    ("validate columns.csv --jobs -1 -o out", "--jobs"),
    ("show dgx-h10", "dgx-h100"),
    ("show dgx-h100 --nodes 0 -o out.png", "--nodes"),
    ("show dgx-h100 -o out.txt", ".png"),
    ("schema 3", "is none of scenario, answer"),
    ("schema answer 3", "unexpected extra argument"),
    ("measure -- python no.py", "--world-size"),
    ("measure --world-size 0 -- python no.py", "--world-size"),
    ("measure --world-size 4 -- python no.py", "no.py"),
    ("measure --world-size 4 --machine abacus -- python train.py", "abacus"),
]


@pytest.fixture
def refusal(cli: Cli, tmp_path: Path) -> Callable[[str], str]:
    """Runs a command line beside two good scenarios and the bad files; returns its sentence."""
    money = {"price": "{per_device_hour: 2 usd/h}", "training": "{samples: 1000000}"}
    (tmp_path / "x.yaml").write_text(GOOD)
    (tmp_path / "box.yaml").write_text(text(BOX, money))
    (tmp_path / "train.py").write_text("")
    for name, content in BAD_FILES.items():
        (tmp_path / name).write_bytes(content)
    before = sorted(path.name for path in tmp_path.iterdir())

    def run(line: str) -> str:
        code, out, err = cli(*line.split())
        assert (code, out) == (2, ""), err
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        told, _, last = err.rstrip("\n").rpartition("\n")
        assert not told or line.startswith("sweep"), err  # it says first how many points there are
        return check(last + "\n")

    return run


@pytest.mark.parametrize(("line", "says"), LINES, ids=lambda value: value or "nothing")
def test_a_command_line_is_refused(line: str, says: str, refusal: Callable[[str], str]) -> None:
    assert says in refusal(line)


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("command", READERS)
def test_a_file_that_cannot_be_read_is_named(
    command: str, name: str, refusal: Callable[[str], str]
) -> None:
    verb, _, rest = command.partition(" ")
    out = {"calibrate": " -o out.yaml", "import": " -o out.yaml", "validate": " -o out"}
    assert name in refusal(f"{verb} {name} {rest}{out.get(verb, '')}")
