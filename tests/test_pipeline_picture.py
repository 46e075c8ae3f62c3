"""The pipeline diagram and the arrivals picture show what the spans say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from pipelines import SECONDS, step

from dpsim.compile.schedules.gpipe import GPipe
from dpsim.compile.schedules.interleaved_1f1b import Interleaved1F1B
from dpsim.compile.schedules.one_f_one_b import OneFOneB
from dpsim.compile.schedules.zb1p import ZB1P
from dpsim.compile.timeline import Span
from dpsim.report import arrivals as late
from dpsim.report import pipeline
from dpsim.report.arrivals import Arrivals, arrivals, lateness
from dpsim.report.figures import draw, styled
from dpsim.report.pipeline import Box, alike, gaps, rows_of


def spans_of(operations: Iterable[Mapping[str, Any]]) -> list[Span]:
    """The spans that `operations` of an explanation's document stand for."""
    keys = ("rank", "stream", "name", "op", "group", "bytes", "ready_s", "start_s", "end_s")
    return [Span(*(operation[key] for key in keys)) for operation in operations]


def bars(figure: Figure, name: str) -> int:
    """How many bars all collections whose id begins with `name` hold."""
    (axes,) = figure.axes
    return sum(
        len(c.get_paths())
        for c in axes.collections
        if isinstance(c, PolyCollection) and str(c.get_gid()).startswith(f"{name}-")
    )


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def compute(rank: int, name: str, op: str, start: float, end: float) -> Span:
    return Span(rank, "compute", name, op, "world", 0.0, start, start, end)


# -- blocks ---------------------------------------------------------------------------------------


def test_every_operation_of_a_schedule_is_a_block_with_its_micro_batch() -> None:
    rows = rows_of(step(OneFOneB(), 4, 8))
    assert sorted(rows) == [0, 1, 2, 3]
    order = " ".join(b.kind + b.number for b in rows[0])
    assert order == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert rows[3][0][:3] == ("F", "0", 0)
    assert rows[3][0][3:] == pytest.approx((3e-3, 4e-3))


def test_a_rank_s_second_stage_is_its_second_chunk() -> None:
    row = rows_of(step(Interleaved1F1B(chunks=2), 2, 4))[1]
    assert [(b.kind, b.number, b.chunk) for b in row][:4] == [
        ("F", "0", 0), ("F", "1", 0), ("F", "0", 1), ("B", "0", 1),
    ]  # fmt: skip


def test_layers_of_one_micro_batch_become_one_block_with_or_without_a_pipeline() -> None:
    plain = [
        compute(0, "F0.0", "forward", 0, 1), compute(0, "F1.0", "forward", 1, 2),
        compute(0, "F0.1", "forward", 2, 3), compute(0, "B1.1", "backward", 3, 5),
    ]  # fmt: skip
    assert rows_of(plain)[0] == [
        Box("F", "0", 0, 0, 2), Box("F", "1", 0, 2, 3), Box("B", "1", 0, 3, 5),
    ]  # fmt: skip
    piped = [
        compute(0, "B7.2", "backward", 0, 1), compute(0, "B7.1", "backward", 1, 2),
        Span(0, "gradients.0", "send.B7", "send", "gradients.0", 8.0, 2, 2, 3),
    ]  # fmt: skip
    assert rows_of(piped)[0] == [Box("B", "7", 0, 0, 2), Box("transfer", "", 0, 2, 3)]


def test_layers_stay_blocks_where_a_step_has_a_single_micro_batch() -> None:
    spans = [compute(0, "F0", "forward", 0, 1), compute(0, "F1", "forward", 1, 2)]
    assert [b.number for b in rows_of(spans)[0]] == ["0", "1"]
    assert pipeline.numbered_by(spans) == "layers"
    assert pipeline.numbered_by(step(OneFOneB(), 2, 2)) == "micro-batches"
    assert pipeline.numbered_by([compute(0, "F0.3", "forward", 0, 1)]) == "micro-batches"


def test_other_work_has_kinds_of_its_own() -> None:
    spans = [
        compute(0, "host", "serial", 0, 1), compute(0, "copy.out", "copy", 1, 2),
        compute(0, "O", "optimizer", 2, 3), compute(0, "W", "wait", 3, 3),
        compute(0, "lockstep", "forward", 3, 4),
        Span(0, "ddp", "AR0", "all_reduce", "world", 4.0, 0, 0, 1),
    ]  # fmt: skip
    kinds = {(b.kind, b.number) for b in rows_of(spans)[0]}
    assert kinds == {("other", ""), ("optimizer", ""), ("F", ""), ("collective", "AR0")}


def test_gaps_are_when_nothing_computes() -> None:
    row = [Box("F", "0", 0, 1, 2), Box("collective", "AR0", 0, 2, 4), Box("B", "0", 0, 4, 6)]
    assert gaps(row, 7) == [(0.0, 1), (2, 4), (6, 7)]
    assert gaps([], 3) == [(0.0, 3)]
    assert gaps([Box("F", "0", 0, 0, 3)], 3) == []


def test_ranks_that_do_the_same_share_a_row() -> None:
    a, b = [Box("F", "0", 0, 0, 1)], [Box("F", "0", 0, 0, 2)]
    assert alike({0: a, 1: b, 2: list(a), 3: b}) == [((0, 2), tuple(a)), ((1, 3), tuple(b))]


def test_operations_of_an_explanation_are_spans_again() -> None:
    (span,) = spans_of(
        [
            {
                "rank": 1, "stream": "ddp", "name": "AR0", "op": "all_reduce", "group": "world",
                "bytes": 8.0, "ready_s": 1.0, "start_s": 2.0, "end_s": 3.0,
            }
        ]
    )  # fmt: skip
    assert span == Span(1, "ddp", "AR0", "all_reduce", "world", 8.0, 1.0, 2.0, 3.0)


# -- the diagram ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "m"), [(4, 8), (2, 4), (16, 64)])
def test_the_diagram_has_every_block_and_says_how_much_is_bubble(p: int, m: int) -> None:
    """(p-1)/(m+p-1) of the time with equal stages."""
    with styled():
        figure = pipeline.make_figure(step(GPipe(), p, m), "all forwards, all backwards")
    assert bars(figure, "F") == bars(figure, "B") == p * m
    share = f"compute idle {(p - 1) / (m + p - 1) * 100:.1f} %"
    assert share in figure.get_suptitle()
    assert {"forward", "backward", pipeline.IDLE} == set(legend(figure))
    if (p, m) == (4, 8):
        assert sorted(texts(figure)) == sorted([str(i) for i in range(m)] * 2 * p)


def test_the_diagram_of_a_split_backward_with_communication_and_optimizer() -> None:
    spans = step(ZB1P(), 4, 8, latency=1e-4, gradients=2e-3)
    with styled():
        figure = pipeline.make_figure(spans, "ZB1P")
    assert bars(figure, "I") == bars(figure, "W") == 32
    assert bars(figure, "transfer") == sum(s.op == "send" for s in spans) == 2 * 3 * 8
    assert bars(figure, "collective") == bars(figure, "optimizer") == 4
    assert "AR0" in texts(figure)
    assert len(legend(figure)) == 7


def test_numbers_are_left_out_where_they_do_not_fit() -> None:
    spans = [compute(0, f"F{i}", "forward", i * 1e-6, (i + 1) * 1e-6) for i in range(3000)]
    spans.append(compute(0, "B0", "backward", 3e-3, 4e-3))
    with styled():
        figure = pipeline.make_figure(spans, "many")
    assert texts(figure) == ["0"]


def test_rows_beyond_a_page_are_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_ROWS", 3)
    with styled():
        figure = pipeline.make_figure(step(OneFOneB(), 8, 8), "eight")
        of_more = pipeline.make_figure(step(OneFOneB(), 8, 8), "eight", ranks=1000)
    assert "5 more ranks are not shown" in figure.get_suptitle()
    assert "997 more ranks are not shown" in of_more.get_suptitle()
    assert len(figure.axes[0].get_yticks()) == 3


def test_a_wait_at_the_end_counts_as_idle() -> None:
    spans = [compute(0, "F0", "forward", 0, 1), compute(0, "W", "wait", 4, 4)]
    with styled():
        figure = pipeline.make_figure(spans, "waits")
    assert "one step: 4 s; compute idle 75.0 %" in figure.get_suptitle()


def test_drawings_are_reproducible_and_well_formed(tmp_path: Path) -> None:
    spans = step(Interleaved1F1B(), 4, 8, latency=1e-4, gradients=1e-3, late={2: 1.5})
    for picture in (pipeline, late):
        make = partial(picture.make_figure, spans, "a <script> & \x1b[31mred")
        draw(make, tmp_path / "a.png", tmp_path / "a.svg")
        draw(make, tmp_path / "b.png", tmp_path / "b.svg")
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
        assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        ElementTree.parse(tmp_path / "a.svg")


def test_nothing_to_draw_is_a_picture_too(tmp_path: Path) -> None:
    for picture in (pipeline, late):
        make = partial(picture.make_figure, [], "nothing")
        draw(make, tmp_path / "a.png", tmp_path / "a.svg")
    with styled():
        assert "no collective" in late.make_figure([], "nothing").get_suptitle()


# -- arrivals -------------------------------------------------------------------------------------


def reached(
    rank: int, name: str, ready: float, start: float, end: float, group: str = "world"
) -> Span:
    return Span(rank, "ddp", name, "all_reduce", group, 4.0, ready, start, end)


def test_arrivals_are_the_ready_times_of_a_group() -> None:
    spans = [
        reached(0, "AR0", 1, 5, 6), reached(1, "AR0", 5, 5, 6), reached(2, "AR0", 2, 5, 6),
        reached(0, "AR1", 7, 7, 8), reached(1, "AR1", 7, 7, 8), reached(2, "AR1", 7, 7, 8),
        compute(0, "F0", "forward", 0, 1),
        Span(0, "activations.0", "send.F0", "send", "activations.0", 1.0, 1, 1, 2),
    ]  # fmt: skip
    first, second = arrivals(spans)
    assert first == Arrivals("AR0", {0: 1, 1: 5, 2: 2}, 5, 6)
    assert (first.first, first.middle, first.last, first.spread, first.latest) == (1, 2, 5, 4, 1)
    assert (second.name, second.spread) == ("AR1", 0)
    assert lateness([first, second]) == {1: 3}


def test_groups_of_one_name_that_run_at_other_times_are_apart() -> None:
    spans = [
        reached(0, "AR0", 1, 2, 3, "data"), reached(1, "AR0", 2, 2, 3, "data"),
        reached(2, "AR0", 3, 4, 5, "data"), reached(3, "AR0", 4, 4, 5, "data"),
        reached(4, "AR0", 1, 6, 7, "alone"),
    ]  # fmt: skip
    assert [set(a.ready) for a in arrivals(spans)] == [{0, 1}, {2, 3}]


def test_a_slow_rank_is_the_one_that_others_wait_for() -> None:
    """Rank 3 takes twice as long for four micro-batches; one all-reduce ends the step."""
    alone = 4 * (SECONDS["F"] + SECONDS["B"])
    spans = [
        reached(rank, "AR0", alone * (1 + (rank == 3)), 2 * alone, 2 * alone + 1e-3)
        for rank in range(5)
    ]
    (one,) = arrivals(spans)
    assert one.latest == 3
    assert one.spread == pytest.approx(alone)
    assert lateness([one]) == {3: pytest.approx(alone)}
    with styled():
        figure = late.make_figure(spans, "slow")
    assert f"spread up to {alone * 1e3:.0f} ms" in figure.get_suptitle()
    assert [t.get_text() for t in figure.axes[1].get_yticklabels()] == ["rank 3"]


def test_the_widest_collectives_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "MOST_ROWS", 2)
    spans = [
        reached(rank, f"AR{k}", 10 * k + rank * k, 10 * k + k, 10 * k + k + 1)
        for k in range(4) for rank in (0, 1)
    ]  # fmt: skip
    with styled():
        figure = late.make_figure(spans, "four")
        of_more = late.make_figure(spans, "four", ranks=8)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["AR2", "AR3"]
    assert "the 2 widest of 4 collectives" in figure.get_suptitle()
    assert "2 of 8 ranks" in of_more.get_suptitle()
