"""Stragglers in measured times: synthetic tables with known stragglers, and a published trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpsim.cli import DONE, ENVIRONMENT, FINDING, REFUSED, _run
from dpsim.core.record import Refused
from dpsim.measurements.stragglers import Found, analyse, of_times
from dpsim.measurements.stragglers._operations import COMPUTE, graph_of, ideal, lengths, play
from dpsim.measurements.stragglers._read import read
from dpsim.measurements.stragglers._table import Times

DATA = Path(__file__).parent / "data"
EXCERPT = DATA / "straggler" / "trace-ST-excerpt.csv"
#: step_t_nodelay of result-ST.json (ByteDance-Seed/StragglerAnalysis 8efcd7f3)
PUBLISHED = {
    23: 2.339666260908416,
    33: 2.1029415186894767,
    259: 2.1686773295441526,
    514: 2.1792256655389792,
    1010: 2.167990019024728,
    1048: 2.1714884880566387,
}


def times(ranks: int = 8, steps: int = 60, jitter: float = 0.01) -> Times:
    draws = np.random.default_rng(1).normal(1.0, jitter, (steps, ranks))
    return Times(tuple(range(100, 100 + steps)), tuple(range(ranks)), draws)


def scaled(table: Times, rows: slice | list[int], rank: int, factor: float) -> Times:
    seconds = table.seconds.copy()
    seconds[rows, rank] *= factor
    return Times(table.steps, table.ranks, seconds)


# -- tables -------------------------------------------------------------------------------------


def test_nobody_is_slow_where_times_differ_by_chance() -> None:
    found = of_times(times())
    assert found.stragglers == ()
    assert found.slowdown == pytest.approx(1.0142, abs=2e-3)  # E[max of 8] = 1.42 deviations


@pytest.mark.parametrize("factor", [1.1, 1.5, 3.0])
def test_a_rank_that_is_slow_all_the_time(factor: float) -> None:
    found = of_times(scaled(times(), slice(None), 3, factor))
    (one,) = found.stragglers
    assert (one.rank, one.since, one.pattern, one.share) == (3, 100, "all the time", 1.0)
    assert one.factor == pytest.approx(factor, rel=0.01)
    assert found.slowdown == pytest.approx(factor, rel=0.01)
    assert one.gain == pytest.approx(factor - 1.0142, abs=0.01)


@pytest.mark.parametrize("first", [10, 31, 50])
def test_since_when_a_rank_is_slow(first: int) -> None:
    found = of_times(scaled(times(), slice(first, None), 5, 1.2))
    (one,) = found.stragglers
    assert (one.rank, one.pattern) == (5, "since a step")
    assert one.since == 100 + first
    assert one.share == pytest.approx((60 - first) / 60)
    assert one.factor == pytest.approx(1.2, rel=0.02)


def test_a_rank_that_is_slow_at_times() -> None:
    found = of_times(scaled(times(), [7, 20, 44], 2, 2.0))
    (one,) = found.stragglers
    assert (one.rank, one.pattern, one.since) == (2, "at times", 107)
    assert one.share == pytest.approx(3 / 60)
    assert one.gain == pytest.approx(3 / 60, rel=0.05)


def test_two_stragglers_hide_one_another() -> None:
    table = scaled(scaled(times(jitter=0.001), slice(None), 0, 1.3), slice(None), 6, 1.5)
    found = of_times(table)
    assert [one.rank for one in found.stragglers] == [6, 0]
    assert found.stragglers[0].gain == pytest.approx(0.2, abs=0.01)  # rank 0 is still there
    assert found.stragglers[1].gain == pytest.approx(0.0, abs=1e-9)


def test_uneven_work_is_told_from_slow_ranks() -> None:
    table = times(jitter=0.001)
    rng = np.random.default_rng(3)
    for rank in range(8):
        table = scaled(table, list(rng.choice(60, 5, replace=False)), rank, 1.8)
    assert any("uneven from step to step" in note for note in of_times(table).notes)


def test_times_that_contain_the_wait_are_doubted() -> None:
    equal = Times((1, 2), (0, 1), np.array([[2.0, 2.0], [1.5, 1.5]]))
    found = of_times(equal)
    assert found.stragglers == ()
    assert any("wait for each other" in note for note in found.notes)


def test_ranks_do_not_depend_on_their_order() -> None:
    table = scaled(times(), slice(20, None), 1, 1.3)
    turned = Times(table.steps, table.ranks[::-1], table.seconds[:, ::-1])
    assert of_times(table).document() == of_times(turned).document()


def test_the_threshold_is_what_counts_as_slow() -> None:
    table = scaled(times(jitter=0.001), slice(None), 1, 1.04)
    assert of_times(table).stragglers == ()
    assert [one.rank for one in of_times(table, 0.03).stragglers] == [1]


def test_rows_of_a_csv_add_up_and_steps_without_all_ranks_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(
        "step,rank,seconds,what\n0,0,1,f\n0,0,2,b\n0,1,3,f\n1,0,4,f\n2,1,4,f\n2,0,6,f\n"
    )
    found = read([file])
    assert isinstance(found, Times)
    assert (found.steps, found.ranks) == ((0, 2), (0, 1))
    assert found.seconds.tolist() == [[3.0, 3.0], [6.0, 4.0]]


# -- a published trace --------------------------------------------------------------------------


def test_a_trace_that_is_played_takes_the_published_times() -> None:
    trace = read([EXCERPT])
    assert not isinstance(trace, Times)
    graph = graph_of(trace)
    found = play(graph, lengths(trace, graph))
    assert dict(zip(trace.steps, found, strict=True)) == pytest.approx(PUBLISHED, rel=1e-6)


def test_the_ideal_step_is_that_of_a_balanced_pipeline() -> None:
    """1F1B of 4 stages and 4 micro-batches with equal times: (4 + 3)(F + B), 3 transfers each way
    at its ends and what precedes and follows the pipeline; transfers in between are hidden or not,
    so this is a lower bound that is nearly met."""
    trace = read([EXCERPT])
    assert not isinstance(trace, Times)
    graph = graph_of(trace)
    best = ideal(lengths(trace, graph))
    each = {key.kind: float(value[0, 0]) for key, value in best.items()}
    around = sum(t for kind, t in each.items() if "-send" not in kind and "-recv" not in kind)
    around -= each["forward-compute"] + each["backward-compute"]
    bound = 7 * (each["forward-compute"] + each["backward-compute"]) + around
    played = play(graph, best)
    assert (played >= bound - 1e-9).all()
    assert played == pytest.approx(bound, rel=0.01)
    assert set(COMPUTE) < set(each)


def test_the_last_stage_is_the_straggler_of_the_published_job() -> None:
    found = analyse([EXCERPT])
    assert found.kind == "operations"
    assert (found.ranks, found.steps) == (8, 6)
    assert found.original == pytest.approx(np.mean(list(PUBLISHED.values())), rel=1e-6)
    assert found.slowdown == pytest.approx(1.1787, rel=0.02)  # all 32 steps
    assert {one.rank for one in found.stragglers} == {6, 7}
    assert max(found.parts["stage"], key=lambda s: found.parts["stage"][s]) == "3"
    assert any("stage 3" in note for note in found.notes)


def test_a_rank_that_was_made_slow_is_found_in_a_trace(tmp_path: Path) -> None:
    """Forward and backward of rank 4 (replica 0, stage 2) take twice as long."""
    frame = pd.read_csv(EXCERPT)
    slow = frame["rank"].eq(4) & frame.optype.isin(["forward-compute", "backward-compute"])
    stage = frame.stage.eq(3) & frame.optype.isin(["forward-compute", "backward-compute"])
    frame.loc[stage, "duration"] *= 0.7  # the last stage, which is slow already, out of the way
    frame.loc[slow, "duration"] *= 2.0
    frame.to_csv(tmp_path / "t.csv", index=False)
    found = analyse([tmp_path / "t.csv"])
    assert found.stragglers[0].rank == 4
    assert found.stragglers[0].gain > 0.2
    largest = {kind: max(parts, key=lambda p: parts[p]) for kind, parts in found.parts.items()}
    assert (largest["stage"], largest["replica"]) == ("2", "0")


# -- Kineto -------------------------------------------------------------------------------------


def test_kineto_traces_of_two_ranks() -> None:
    files = [DATA / "calibration" / f"hta-sampled_rank-{rank}.json.gz" for rank in (1, 0)]
    found = read(files)
    assert isinstance(found, Times)
    assert (found.ranks, found.steps) == ((0, 1), (551, 552))
    assert found.seconds.sum(axis=0) == pytest.approx([plain(file) for file in sorted(files)])


def plain(file: Path) -> float:
    """Seconds of all kernels but NCCL's that were launched inside a step."""
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    spans = [
        (e["ts"], e["ts"] + e["dur"]) for e in events
        if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#")
    ]  # fmt: skip
    launches = {
        e["args"]["correlation"]: e["ts"] for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }  # fmt: skip
    total = 0.0
    for e in events:
        if e.get("cat", "").lower() == "kernel" and "nccl" not in e["name"].lower():
            at = launches.get(e["args"].get("correlation"), e["ts"])
            total += e["dur"] * 1e-6 if any(a <= at <= b for a, b in spans) else 0.0
    return total


# -- the command --------------------------------------------------------------------------------


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["dpsim", "stragglers", *words])
    return _run()


def test_the_command_says_who_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = scaled(times(), slice(30, None), 3, 1.5)
    rows = [
        f"{rank},{step},{table.seconds[i, k]}"
        for i, step in enumerate(table.steps)
        for k, rank in enumerate(table.ranks)
    ]
    (tmp_path / "t.csv").write_text("rank,step,seconds\n" + "\n".join(rows))
    assert command(monkeypatch, str(tmp_path / "t.csv")) == FINDING
    out = capsys.readouterr().out
    assert "since step 130" in out
    assert command(monkeypatch, str(tmp_path / "t.csv"), "--json") == FINDING
    document = json.loads(capsys.readouterr().out)
    assert document["stragglers"][0]["rank"] == 3
    assert document["slowdown"] == document["original_s"] / document["ideal_s"]
    assert command(monkeypatch, str(tmp_path / "t.csv"), "--threshold", "80 %") == DONE
    assert "No rank is slow" in capsys.readouterr().out


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: Any) -> Any:
        raise ImportError("pyarrow")

    monkeypatch.setattr(pd, "read_parquet", missing)
    (tmp_path / "t.parquet").write_bytes(b"PAR1....PAR1")
    assert command(monkeypatch, str(tmp_path / "t.parquet")) == ENVIRONMENT
    assert "pip install 'dpsim[parquet]'" in capsys.readouterr().err


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pd.read_csv(EXCERPT).to_parquet(tmp_path / "t.parquet")
    assert analyse([tmp_path / "t.parquet"]).document() == analyse([EXCERPT]).document()


TRACE_HEAD = "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mc\n"
BAD: dict[str, tuple[str, str]] = {
    "nothing": ("", "is empty"),
    "other columns": ("a,b\n1,2\n", "has a, b; accepted"),
    "no ranks": ("step,seconds\n0,1\n", "such as its forward pass between two"),
    "one rank": ("rank,step,seconds\n0,0,1\n0,1,1\n", "two or more"),
    "no common step": ("rank,step,seconds\n0,0,1\n1,1,1\n", "no step with a time of every rank"),
    "a negative time": ("rank,step,seconds\n0,0,1\n1,0,-1\n", "line 3: seconds: -1 s is not in"),
    "no number": ("rank,step,seconds\n0,0,1\n1,0,soon\n", "line 3: seconds: 'soon' is not"),
    "infinite": ("rank,step,seconds\n0,0,1\n1,0,inf\n", "line 3: seconds"),
    "half a rank": ("rank,step,seconds\n0,0,1\n0.5,0,1\n", "no whole number"),
    "no time": ("rank,step,seconds\n0,0,0\n1,0,0\n", "take no time"),
    "JSON": ('{"traceEvents": []}', "of one rank"),
    "an operation": (TRACE_HEAD + "0,0,0,0,dance,0,1,0,0\n", "'dance' is not modelled"),
    "model chunks": (TRACE_HEAD + "0,0,0,0,gc,0,1,0,1\n", "not modelled"),
    "no computation": (TRACE_HEAD + "0,0,0,0,gc,0,1,0,0\n", "has no forward-compute"),
    "a hole": (
        TRACE_HEAD + "0,0,0,0,forward-compute,0,1,0,0\n0,0,0,1,backward-compute,0,1,0,0\n",
        "not there once on every replica",
    ),
    "a send to nobody": (
        TRACE_HEAD + "0,0,0,0,forward-compute,0,1,0,0\n0,0,0,0,forward-send,1,1,0,-1\n",
        "has no forward-recv on stage 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_files_that_make_no_sense_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, words = BAD[name]
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(Refused) as refused:
        analyse([tmp_path / "t.csv"])
    assert words in str(refused.value)
    assert command(monkeypatch, str(tmp_path / "t.csv")) == REFUSED
    assert capsys.readouterr().err.startswith("dpsim: t.csv")


def test_found_is_a_whole() -> None:
    found = of_times(times())
    assert isinstance(found, Found)
    assert found.ideal <= found.original
