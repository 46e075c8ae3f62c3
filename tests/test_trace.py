"""A simulated step as trace events: well-formed, complete, and read back to the same times."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipelines import step

import dpsim
from dpsim.backends.ideal import Ideal
from dpsim.compile.program import Cast, Op, Program
from dpsim.compile.schedules.interleaved_1f1b import Interleaved1F1B
from dpsim.compile.timeline import Span
from dpsim.core.outputs import MANIFEST
from dpsim.core.record import Refused
from dpsim.measurements.readers.kineto import Kineto
from dpsim.play import Costs, Play, vectorised
from dpsim.predict.prediction import Prediction
from dpsim.report import trace as writer
from dpsim.report.explained import FILES, last_step
from dpsim.report.trace import Traced, trace, traced, write_trace

Cli = Callable[..., tuple[int, str, str]]
SCENARIOS = (
    "worked/ddp_steady",
    "worked/fsdp2_compute_bound",
    "worked/zero2_deepspeed",
    "worked/pipeline_interleaved2_latency",
)


@pytest.fixture(scope="module", params=SCENARIOS)
def shown(request: pytest.FixtureRequest) -> Traced:
    return last_step(predicted(request.param))


def predicted(name: str, *sets: str) -> Prediction:
    return dpsim.predict(dpsim.read(name, sets))


def hand_made() -> Traced:
    """Two ranks: a slow one, an all-reduce that waits for it, and a transfer."""
    spans = []
    for rank, seconds in ((0, 1e-3), (1, 2e-3)):
        spans += [
            Span(rank, "compute", "host", "serial", "world", 0.0, 0.0, 0.0, 1e-4),
            Span(rank, "compute", "B0", "backward", "world", 0.0, 1e-4, 1e-4, 1e-4 + seconds),
            Span(rank, "ddp", "AR0", "all_reduce", "world", 4e6, 1e-4 + seconds, 2.1e-3, 3e-3),
            Span(rank, "compute", "W", "wait", "world", 0.0, 3e-3, 3e-3, 3e-3),
        ]
    spans.append(Span(0, "a.0", "send.F0", "send", "a.0", 8.0, 1e-3, 1e-3, 1.5e-3))
    spans.append(Span(1, "a.0", "receive.F0", "receive", "a.0", 8.0, 0.0, 1e-3, 1.5e-3))
    groups = {"world": ((0, 1),), "a.0": ((0, 1),)}
    return Traced(spans, 3e-3, 2, groups, "by hand", "H100")


# -- the format -----------------------------------------------------------------------------------


def check_format(document: dict[str, Any]) -> None:
    """The fields that the Trace Event Format asks for, and no others."""
    assert set(document) == {
        "schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "traceName",
        "otherData", "traceEvents",
    }  # fmt: skip
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in document["otherData"].values())
    keys = {
        "X": {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"},
        "M": {"ph", "name", "pid", "tid", "ts", "args"},
        "s": {"ph", "cat", "name", "id", "pid", "tid", "ts"},
        "f": {"ph", "cat", "name", "id", "pid", "tid", "ts", "bp"},
    }
    arrows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in document["traceEvents"]:
        assert set(event) == keys[event["ph"]]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["ts"], float)
        assert event["ts"] >= 0.0
        assert event.get("dur", 0.0) >= 0.0
        assert event["name"]
        if event["ph"] in "sf":
            arrows[event["id"]].append(event)
    for out, into in arrows.values():
        assert (out["ph"], into["ph"], into["bp"]) == ("s", "f", "e")
        assert out["ts"] <= into["ts"]
    check_names(document["traceEvents"])
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def check_names(events: list[dict[str, Any]]) -> None:
    """Every process and thread that anything happens on has one name and one place."""
    argument = {"process_name": "name", "process_sort_index": "sort_index",
                "thread_name": "name", "thread_sort_index": "sort_index"}  # fmt: skip
    named: Counter[tuple[str, int, int]] = Counter()
    for event in events:
        if event["ph"] == "M":
            assert set(event["args"]) == {argument[event["name"]]}
            named[event["name"], event["pid"], event["tid"]] += 1
    assert set(named.values()) == {1}
    for event in events:
        assert ("process_name", event["pid"], 0) in named
        if event["ph"] != "M":
            assert ("thread_name", event["pid"], event["tid"]) in named


def test_the_document_is_of_the_trace_event_format(shown: Traced) -> None:
    check_format(trace(shown))
    check_format(trace(shown.by_rank()[0]))


def test_the_hand_made_step_field_by_field() -> None:
    document = trace(hand_made())
    check_format(document)
    events = document["traceEvents"]
    assert document["distributedInfo"] == {"backend": "nccl", "world_size": 2}
    assert document["deviceProperties"] == [{"id": 0, "name": "H100"}, {"id": 1, "name": "H100"}]
    (kernel,) = [e for e in events if e["pid"] == 1 and "AllReduce" in e["name"]]
    assert kernel["name"] == "ncclDevKernel_AllReduce AR0"
    assert (kernel["cat"], kernel["ts"], kernel["dur"]) == ("kernel", 2100.0, pytest.approx(900.0))
    args = kernel["args"]
    assert (args["Collective name"], args["In msg nelems"], args["dtype"]) == (
        "allreduce", 4_000_000, "Byte",
    )  # fmt: skip
    assert (args["Group size"], args["Process Group Ranks"]) == (2, "[0, 1]")
    (launch,) = [
        e
        for e in events
        if e.get("cat") == "cuda_runtime" and e["args"]["correlation"] == args["correlation"]
    ]
    assert (launch["pid"], launch["ts"], launch["dur"]) == (1, pytest.approx(2100.0), 0.0)
    (host,) = [e for e in events if e["pid"] == 0 and e["name"] == "host"]
    assert (host["cat"], host["tid"]) == ("cpu_op", writer.HOST)
    (out,) = [e for e in events if e["ph"] == "s"]
    (into,) = [e for e in events if e["ph"] == "f"]
    assert (out["pid"], out["ts"], into["pid"], into["ts"]) == (0, 1000.0, 1, 1500.0)
    assert [e["dur"] for e in events if e["name"] == "ProfilerStep#1"] == [3000.0, 3000.0]


def test_shards_are_named_by_what_goes_in_and_out() -> None:
    spans = [
        Span(0, "fsdp", "AG0", "all_gather", "world", 800.0, 0.0, 0.0, 1.0),
        Span(0, "fsdp", "RS0", "reduce_scatter", "world", 800.0, 1.0, 1.0, 2.0),
    ]
    events = trace(Traced(spans, 2.0, 4, {"world": ((0, 1, 2, 3),)}))["traceEvents"]
    sizes = {
        e["args"]["Collective name"]: (e["args"]["In msg nelems"], e["args"]["Out msg nelems"])
        for e in events
        if e.get("cat") == "kernel"
    }
    assert sizes == {"_allgather_base": (200, 800), "_reduce_scatter_base": (800, 200)}


# -- what it says ---------------------------------------------------------------------------------


def test_every_operation_is_there_with_its_times(shown: Traced) -> None:
    found = Counter(
        (e["pid"], e["name"].rpartition(" ")[2], round(e["ts"], 6), round(e["dur"], 6))
        for e in trace(shown)["traceEvents"]
        if e["ph"] == "X" and e["cat"] in ("kernel", "gpu_user_annotation", "cpu_op")
    )
    assert found == Counter(
        (s.rank, s.name, round(s.start * 1e6, 6), round((s.end - s.start) * 1e6, 6))
        for s in shown.spans
    )


def test_nothing_overlaps_on_a_stream(shown: Traced) -> None:
    ends: dict[tuple[int, int], float] = {}
    events = [e for e in trace(shown)["traceEvents"] if e.get("cat") == "kernel"]
    for event in sorted(events, key=lambda e: (e["ts"], e["dur"])):
        key = (event["pid"], event["tid"])
        assert event["ts"] >= ends.get(key, 0.0) - 1e-6
        ends[key] = event["ts"] + event["dur"]


def test_an_arrow_for_every_transfer_from_its_sender_to_its_receiver() -> None:
    shown = last_step(predicted("worked/pipeline_interleaved2_latency"))
    events = trace(shown)["traceEvents"]
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append(event)
    sends = [s for s in shown.spans if s.op == "send"]
    assert len(arrows) == len(sends) == 2 * 7 * 8  # 7 borders between 8 stages, 8 micro-batches
    slices = {(e["pid"], e["tid"], e["ts"]): e["name"] for e in events if e.get("cat") == "kernel"}
    for out, into in arrows.values():
        assert abs(into["pid"] - out["pid"]) in (1, 3)
        assert into["ts"] - out["ts"] == pytest.approx(100.0)  # latency of 0.1 ms
        assert "send." in slices[out["pid"], out["tid"], out["ts"]]


# -- read back ------------------------------------------------------------------------------------


def test_the_reader_of_kineto_traces_gets_the_same_times_back(
    shown: Traced, tmp_path: Path
) -> None:
    for rank, path in zip(shown.shown, write_trace(shown, tmp_path / "ranks"), strict=True):
        assert Kineto().claims(path, path.read_bytes()[:4096])
        found = Kineto().read(path)
        (timed,) = found.steps
        assert timed.ranks == shown.ranks
        assert timed.samples == pytest.approx((shown.end,), rel=1e-12)
        own = [s for s in shown.spans if s.rank == rank]
        exchanged = sorted(
            (s for s in own if s.op in ("all_reduce", "reduce_scatter") and s.bytes > 0),
            key=lambda s: (s.start, s.end),
        )
        assert [(b.bytes, b.step) for b in found.buckets] == [(s.bytes, 0) for s in exchanged]
        for bucket, span in zip(found.buckets, exchanged, strict=True):
            times = (bucket.ready, bucket.start, bucket.end)
            assert times == pytest.approx((span.ready, span.start, span.end), rel=1e-9, abs=1e-15)
        busy = sum(s.end - s.start for s in own if s.stream == "compute" and s.op != "serial")
        assert sum(layer.forward for layer in found.layers) == pytest.approx(busy, rel=1e-9)


def test_the_reader_sees_as_much_overlap_as_there_is(tmp_path: Path) -> None:
    """An all-reduce of 2 ms, of which 1.5 ms run beside compute."""
    spans = [
        Span(0, "compute", "B0", "backward", "world", 0.0, 0.0, 0.0, 3e-3),
        Span(0, "ddp", "AR0", "all_reduce", "world", 4e6, 1.5e-3, 1.5e-3, 3.5e-3),
    ]
    (path,) = write_trace(Traced(spans, 3.5e-3, 2), tmp_path / "one.json.gz")
    assert Kineto().read(path).overlap == pytest.approx(0.75)


# -- files ----------------------------------------------------------------------------------------


def test_large_steps_keep_whole_ranks_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slowest rank is one of them."""
    slow = "variability={slow_ranks: {6: 1.5}}"
    prediction = predicted("worked/ddp_steady", "cluster.ranks=8", slow)
    per_rank = len(last_step(prediction).by_rank()[0].spans)
    monkeypatch.setattr(writer, "MAX_SPANS", 3 * per_rank)
    shown = last_step(prediction)
    assert shown.shown == (0, 1, 6)
    assert trace(shown)["otherData"]["ranks"] == "3 of 8"
    assert trace(shown)["distributedInfo"]["world_size"] == 8


def test_a_name_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    (tmp_path / "folder.json").mkdir()
    for name in ("trace.txt", "there", "folder.json"):
        with pytest.raises(Refused, match="--trace"):
            write_trace(hand_made(), tmp_path / name)


def test_the_same_step_gives_the_same_bytes(tmp_path: Path) -> None:
    for kind in ("json", "json.gz"):
        first, second = (tmp_path / f"{name}.{kind}" for name in "ab")
        write_trace(hand_made(), first)
        write_trace(hand_made(), second)
        assert first.read_bytes() == second.read_bytes()
    assert (
        gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()
    )


def test_spans_without_groups_are_written_without_arrows() -> None:
    spans = step(Interleaved1F1B(), 2, 4, latency=1e-4)
    document = trace(Traced(spans, max(s.end for s in spans), 2))
    check_format(document)
    assert not [e for e in document["traceEvents"] if e["ph"] in "sf"]


def test_explain_writes_a_trace_and_pictures(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("explain", "worked/ddp_steady", "-o", "out", "--trace", "t/all.json.gz")
    assert code == 0
    assert "Timeline of 2 ranks written to out" in out
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted([*FILES, MANIFEST])
    whole = json.loads((tmp_path / "out" / "trace.json").read_text())
    check_format(whole)
    assert json.loads(gzip.decompress((tmp_path / "t" / "all.json.gz").read_bytes())) == whole


def test_explain_writes_a_kineto_trace_per_rank_that_calibrate_reads(
    cli: Cli, tmp_path: Path
) -> None:
    code, out, _ = cli("explain", "worked/ddp_steady", "--json", "--trace", "ranks")
    assert code == 0
    time = json.loads(out)["points"][-1]["step_time_s"]
    assert sorted(p.name for p in (tmp_path / "ranks").iterdir()) == [
        MANIFEST, "rank0.json", "rank1.json",
    ]  # fmt: skip
    code, out, _ = cli("calibrate", "ranks/rank0.json", "--json")
    assert code == 0
    assert f"{time:.6f}"[:7] in out


def test_explain_refuses_a_trace_of_another_name(cli: Cli) -> None:
    code, _, err = cli("explain", "worked/ddp_steady", "--trace", "trace.txt")
    assert code == 2
    assert ".json" in err


def test_an_event_of_many_ranks_names_the_first_thirty() -> None:
    """As torch does: with all of 4,096 in every event a trace has hundreds of megabytes."""
    program = Program((
        Op("AR", "collective", "c", operation="all_reduce", bytes=1e6),
        Op("W", "wait", after=(0,)),
    ))  # fmt: skip
    cast = Cast.uniform(program, 40)
    play = Play(lambda _: cast, Costs(Ideal(latency=1e-3), None), 1, 0, lambda _: np.ones(40))
    shown = traced(vectorised.play(play).last)
    (first, *_) = [e for e in trace(shown)["traceEvents"] if "AllReduce" in e["name"]]
    ranks = first["args"]["Process Group Ranks"]
    assert ranks == f"[{', '.join(map(str, range(30)))}, ...]"
    assert first["args"]["Group size"] == 40
