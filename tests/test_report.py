"""Reports: what is drawn, written and said equals the document, whatever names users give."""

from __future__ import annotations

import csv
import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

import dpsim
from dpsim.cli.app import app
from dpsim.core.outputs import MANIFEST
from dpsim.core.record import Refused
from dpsim.describe.scenario import read
from dpsim.machines.machine import load_machine
from dpsim.models.memory import UNFIT, MemoryUse
from dpsim.models.named import load_named, model_names
from dpsim.predict.advice import advice, with_advice
from dpsim.predict.answer import Advice
from dpsim.predict.document import to_json
from dpsim.predict.explanation import Operation
from dpsim.predict.memory import memory_of
from dpsim.predict.point import Point, computed
from dpsim.predict.prediction import Prediction, predict
from dpsim.report.curve import bounds, make_figure
from dpsim.report.explained import condensed, print_explanation
from dpsim.report.points import run_columns, settings
from dpsim.report.run import FILES, print_run, write_all
from dpsim.report.sentences import advice_text, headline, scaling_title, sentences, titles
from dpsim.report.text import brief
from dpsim.report.things import show_thing, units

TOY = """
title: {title}
model:
  dtype: fp32
  layers:
    - {{name: a, parameters: 5000000, forward: 1 ms, backward: 2 ms}}
    - {{name: b, parameters: 5000000, forward: 1 ms, backward: 2 ms}}
cluster: {{ranks: 1}}
collective: {{backend: ideal_ring, latency: 50 us, bandwidth: 20 GB/s}}
strategy: {{kind: ddp}}
optimizer: {{kind: none}}
batch: {{{batch}}}
sweep: {sweep}
"""
WEAK = "{cluster.ranks: [1, 2, 4, 8, 16]}"
MEASURED = "ranks,step_time_s,source\n1,0.0063,mine\n4,0.0071,mine\n16,0.0080,mine\n"
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}} {% for x in y %} ${8*8}",
    "\\e[31mred\\e]0;owned\\a\\r\\nforged: line",
    "=cmd|'/c calc'!A1",
    "]]></style></svg><a href=javascript:alert(1)>x</a>",
    "[bold red]markup[/bold red] [/] \\u202e \\u0085",
    "--><b onclick=x>comment</b><!--",
    "$x^2 \\\\frac{$ &lt; & \\u732b",
]


def toy(
    folder: Path,
    title: str = "toy",
    batch: str = "per_device: 1",
    sweep: str = WEAK,
    more: str = "",
) -> Prediction:
    quoted = title if title.startswith('"') else json.dumps(title)
    text = TOY.format(title=quoted, batch=batch, sweep=sweep) + more
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    (folder / "measured.csv").write_text(MEASURED, encoding="utf-8")
    return dpsim.predict(dpsim.read(folder / "scenario.yaml"))


def measured_toy(folder: Path) -> Prediction:
    return toy(folder, more="measured: measured.csv\ncalibrate: {file: measured.csv, ranks: 1}\n")


def drawn(figure: Figure, gid: str) -> list[tuple[float, float]]:
    """Coordinates of every line in `figure` with this mark."""
    lines = [line for axes in figure.axes for line in axes.lines if line.get_gid() == gid]
    return [(float(x), float(y)) for line in lines for x, y in zip(*line.get_data(), strict=True)]


def said(prediction: Prediction, width: int = 200) -> str:
    buffer = io.StringIO()
    print_run(prediction, Console(file=buffer, width=width, highlight=False), None)
    return buffer.getvalue()


# -- curves ---------------------------------------------------------------------------------------


def test_plotted_points_are_the_documents_numbers(tmp_path: Path) -> None:
    prediction = measured_toy(tmp_path)
    figure = make_figure(prediction.answer)
    for key in ("speedup", "efficiency"):
        assert drawn(figure, f"line-{key}") == [(p["ranks"], p[key]) for p in prediction.points]
    measured = {
        m["ranks"]: m["throughput_per_s"] / prediction.points[0]["throughput_per_s"]
        for m in prediction.document["measured"]
    }
    assert dict(drawn(figure, "measured-speedup")) == pytest.approx(measured)
    assert drawn(figure, "ideal") == [(1, 1), (16, 16)]


def test_calibrated_point_is_marked_apart(tmp_path: Path) -> None:
    figure = make_figure(measured_toy(tmp_path).answer)
    marks = [line for line in figure.axes[0].lines if line.get_gid() == "measured-speedup"]
    assert {line.get_marker(): len(line.get_xdata()) for line in marks} == {"*": 1, "D": 2}  # type: ignore[arg-type]


def test_amdahl_line_is_the_law_under_strong_scaling_only() -> None:
    strong = dpsim.predict(dpsim.read("amdahl")).answer
    line = drawn(make_figure(strong), "amdahl")
    assert line[0] == pytest.approx((1.0, 1.0))
    last = strong.points[-1]
    assert line[-1] == pytest.approx((last["ranks"], last["speedup"]), rel=1e-9)


def test_weak_scaling_has_no_amdahl_line(tmp_path: Path) -> None:
    assert drawn(make_figure(toy(tmp_path).answer), "amdahl") == []


def test_band_is_the_interval() -> None:
    (point,) = computed(dpsim.predict(dpsim.read("worked/ddp_steady")).points)
    ends = {"efficiency_low": 0.25, "efficiency_high": 0.75}
    point = replace(point, speedup=4.0, efficiency=0.5, **ends)
    assert bounds(point, "speedup") == (2.0, 6.0)
    assert bounds(point, "efficiency") == (0.25, 0.75)


def test_one_count_gets_bars_that_sum_to_the_step() -> None:
    answer = dpsim.predict(dpsim.read("worked/ddp_steady")).answer
    (axes,) = make_figure(answer).axes
    widths = [patch.get_width() for patch in axes.patches]  # type: ignore[attr-defined]
    assert sum(widths) == pytest.approx(answer.points[0]["step_time_s"] * 1e3)
    assert axes.get_xlabel() == "time per step [ms]"


def test_several_settings_are_several_lines(tmp_path: Path) -> None:
    sweep = "{cluster.ranks: [1, 4], collective.bandwidth: [1 GB/s, 10 GB/s]}"
    answer = toy(tmp_path, sweep=sweep).answer
    lines = [x for x in make_figure(answer).axes[0].lines if x.get_gid() == "line-speedup"]
    assert [line.get_label() for line in lines] == [
        "collective.bandwidth = 1 GB/s",
        "collective.bandwidth = 10 GB/s",
    ]


def test_settings_are_written_as_files_have_them(tmp_path: Path) -> None:
    answer = toy(tmp_path, sweep="{cluster.ranks: [4], input: [null, {synthetic: true}]}").answer
    shown = [settings(point, short=True) for point in answer.points]
    assert shown == ["input=null", "input=synthetic=true"]


def test_axes_say_scaling_units_and_real_counts(tmp_path: Path) -> None:
    sweep = "{cluster.ranks: [1, 3, 6, 12]}"
    figure = make_figure(toy(tmp_path, sweep=sweep).answer)
    above, below = figure.axes[:2]
    assert list(below.xaxis.get_major_locator()()) == [1, 3, 6, 12]
    assert (above.get_xscale(), above.get_yscale()) == ("log", "log")
    assert "Weak scaling: 1 sample per rank" in figure.get_suptitle()
    assert "%" in below.get_ylabel()
    assert "rank" in below.get_xlabel()


# -- files ----------------------------------------------------------------------------------------


def test_files_are_all_there_and_the_same_each_time(tmp_path: Path) -> None:
    prediction = measured_toy(tmp_path)
    first, second = tmp_path / "one", tmp_path / "deep" / "two"
    write_all(prediction, first)
    write_all(prediction, second)
    write_all(prediction, second)
    assert sorted(p.name for p in second.iterdir()) == sorted([*FILES, MANIFEST])
    for name in FILES:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert json.loads((first / "prediction.json").read_text()) == prediction.document
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_csv_has_the_documents_numbers(tmp_path: Path) -> None:
    prediction = measured_toy(tmp_path)
    write_all(prediction, tmp_path / "out")
    with (tmp_path / "out" / "points.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, point in zip(rows, prediction.points, strict=True):
        for key in ("ranks", "step_time_s", "speedup", "efficiency", "memory_bytes"):
            assert float(row[key]) == point[key]
    assert [row["measured_role"] for row in rows] == [
        "calibrated",
        "",
        "predicted",
        "",
        "predicted",
    ]


@pytest.mark.parametrize("bad", ["=1+1", "+1", "-1", "@x", "\tx", "  =x"])
def test_csv_text_is_no_formula(bad: str, tmp_path: Path) -> None:
    prediction = toy(tmp_path)
    first, *others = prediction.outcomes
    assert isinstance(first.point, Point)
    point = replace(first.point, bottleneck=bad, set={bad: bad})
    prediction = replace(prediction, outcomes=(replace(first, point=point), *others))
    write_all(prediction, tmp_path / "out")
    with (tmp_path / "out" / "points.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    for cell in (cell for row in rows for cell in row):
        assert not cell.lstrip(" ").startswith(("=", "+", "@", "\t")), cell
        if cell.startswith("-"):
            float(cell)


def test_file_in_the_way_is_refused_and_kept(tmp_path: Path) -> None:
    prediction = toy(tmp_path)
    place = tmp_path / "taken"
    place.write_text("mine")
    for out in (place, place / "below"):
        with pytest.raises(Refused, match="is a file"):
            write_all(prediction, out)
    assert place.read_text() == "mine"
    before = sorted(tmp_path.iterdir())
    (tmp_path / "out" / "curve.png").mkdir(parents=True)
    with pytest.raises(Refused, match=r"dpsim did not write what is in that folder \(curve\.png\)"):
        write_all(prediction, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "out"])


def test_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prediction = toy(tmp_path)
    before = sorted(tmp_path.iterdir())

    def fail(*_: object) -> str:
        raise RuntimeError("no page")

    monkeypatch.setattr("dpsim.report.pages.run.page", fail)
    with pytest.raises(RuntimeError):
        write_all(prediction, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


# -- the page -------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """Elements and attributes of a page, whether they nest, and its text."""

    void = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(prediction: Prediction, folder: Path) -> tuple[str, Elements]:
    write_all(prediction, folder / "out")
    text = (folder / "out" / "index.html").read_text(encoding="utf-8")
    return text, Elements(text)


def test_page_is_self_contained_and_answers_first(tmp_path: Path) -> None:
    prediction = measured_toy(tmp_path)
    text, page = page_of(prediction, tmp_path)
    assert page.open == []
    assert not {"link", "img", "iframe", "object", "form"} & {t for t, _ in page.found}
    for name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in ("href", "src", "xlink:href") or value.startswith("#")
    assert "url(" not in text.replace("url(#", "")
    assert "default-src 'none'" in text
    answer = prediction.answer
    assert page.text.index(headline(answer)) < page.text.index("Points")
    for part in (scaling_title(answer), *sentences(answer)):
        assert part in page.text
    for row in run_columns(answer.points)[1]:
        assert all(cell in page.text for cell in row)


@pytest.mark.parametrize("title", HOSTILE)
def test_names_are_text_everywhere(title: str, tmp_path: Path) -> None:
    plain, hostile = tmp_path / "plain", tmp_path / "hostile"
    plain.mkdir()
    hostile.mkdir()
    _, expected = page_of(toy(plain), plain)
    quoted = '"' + title.replace('"', '\\"') + '"'
    prediction = toy(hostile, title=quoted.replace("\\\\\\\\", "\\\\"))
    text, page = page_of(prediction, hostile)

    def shape(found: Elements) -> list[Any]:
        """Elements outside the drawing, whose glyphs depend on the title."""
        drawing = ("path", "g", "use", "defs", "text", "tspan", "clippath", "rect")
        return [item for item in found.found if item[0] not in drawing]

    assert shape(page) == shape(expected)
    assert page.open == []
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert "\x1b" not in text
    assert brief(prediction.document["name"], 200) in page.text
    output = said(prediction)
    assert not any(ord(c) < 32 and c != "\n" for c in output)
    assert brief(prediction.document["name"], 100) in output
    assert not any(line.startswith("forged") for line in output.splitlines())


# -- sentences ------------------------------------------------------------------------------------


def test_run_always_says_what_is_held_constant(tmp_path: Path) -> None:
    assert "Weak scaling: 1 sample per rank" in said(toy(tmp_path))
    strong = toy(tmp_path, batch="global: 64")
    assert "Strong scaling: global batch of 64 samples held constant" in said(strong)


def test_run_says_bend_error_and_engine(tmp_path: Path) -> None:
    prediction = measured_toy(tmp_path)
    text = said(prediction)
    held_out = [m for m in prediction.document["measured"] if m["role"] == "predicted"]
    mean = sum(abs(m["error"]) for m in held_out) / 2  # the median of two
    assert f"Against 2 measured points the median absolute error is {mean * 100:.1f} %" in text
    assert "at 1 rank set the level of compute" in text
    assert "event engine" in text
    bend = prediction.document["laws"]["bend"]
    assert (f"bends at {bend['ranks']} ranks" if bend else "does not bend") in text


@pytest.mark.parametrize("width", [40, 80, 118])
def test_narrow_terminals_keep_whole_numbers(width: int, tmp_path: Path) -> None:
    prediction = toy(tmp_path)
    text = said(prediction, width)
    for point in prediction.points:
        assert any(
            line.split()[:1] == [str(point["ranks"])] for line in text.splitlines() if line.strip()
        )
    assert all(len(line) <= width for line in text.splitlines())


def test_point_without_a_number_is_shown(tmp_path: Path) -> None:
    prediction = toy(tmp_path, batch="global: 8", sweep="{cluster.ranks: [1, 8, 16]}")
    text = said(prediction)
    assert "no number" in text
    assert "16 ranks: " in text
    _, page = page_of(prediction, tmp_path)
    assert "There is no number at 1 of 3 points." in page.text


def test_explanation_names_path_and_gains(tmp_path: Path) -> None:
    found = toy(tmp_path, sweep="{cluster.ranks: [1, 8]}").explain()
    buffer = io.StringIO()
    print_explanation(found, Console(file=buffer, width=160, highlight=False))
    text = buffer.getvalue()
    gains = [c["throughput_gain"] for c in found["points"][1]["what_if"]]
    lines = text.split("throughput")[-1].splitlines()
    assert [line.split()[-2] for line in lines if line.endswith("% ")] == [
        f"{gain * 100:+.1f}" for gain in sorted(gains, reverse=True)
    ]
    assert "Critical path (rank 0)" in text
    assert "all-reduce" in text
    assert "forward ×2" in text


def test_long_explanations_are_cut_in_the_middle(tmp_path: Path) -> None:
    counts = ", ".join(map(str, range(1, 16)))
    found = toy(tmp_path, sweep=f"{{cluster.ranks: [{counts}]}}").explain()
    buffer = io.StringIO()
    print_explanation(found, Console(file=buffer, width=160, highlight=False))
    assert "3 points in between are left out" in buffer.getvalue()
    assert "\n15 ranks\n" in buffer.getvalue()
    assert "\n8 ranks\n" not in buffer.getvalue()


def test_condensed_path_keeps_the_time() -> None:
    path = [
        Operation(0, "compute", "F", "forward", "", 0.0, 0.0, 0.0, 1.0),
        Operation(0, "compute", "G", "forward", "", 0.0, 1.0, 1.0, 3.0),
        Operation(0, "network", "AR0", "all_reduce", "", 0.0, 3.0, 3.0, 4.0),
    ]
    assert condensed(path) == "forward ×2 3 s → all-reduce AR0 1 s"
    assert condensed([]) == ""


def test_a_path_of_short_runs_is_told_by_kinds() -> None:
    """As in a pipeline, where forward and backward take turns."""
    path = [
        Operation(0, "compute", "L", kind, "", 0.0, float(at), float(at), at + 1.0)
        for at, kind in enumerate(("forward", "backward") * 200)
    ]
    path.append(Operation(0, "network", "AR0", "all_reduce", "", 0.0, 400.0, 400.0, 401.0))
    assert condensed(path) == "forward ×200 200 s, backward ×200 200 s, all-reduce ×1 1 s"


# -- advice ---------------------------------------------------------------------------------------

LLAMA = """
model: {huggingface: llama-3-8b, sequence_length: 4096}
cluster: {machine: dgx-h100, nodes: 1}
strategy: {kind: ddp}
precision: {parameters: fp32, compute: bf16}
batch: {per_device: 1}
"""


def test_memory_advice_fits_and_only_if_needed(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(LLAMA)
    prediction = dpsim.predict(dpsim.read(tmp_path / "s.yaml"))
    case = prediction.outcomes[0].case
    used = memory_of(case)
    assert used.fits in UNFIT
    lines = [advice_text(one) for one in advice(case, used)]
    assert any("strategy: {kind: fsdp}" in line for line in lines)
    assert any(" and " in line for line in lines)
    for line in lines:
        needed = float(line.split(": ")[-1].split(" GB")[0])
        assert needed <= (used.capacity or 0) / 1e9
    assert lines[0] in said(prediction)
    assert advice(case, MemoryUse({"x": 1.0}, 2.0, 1.0, 1.0)) == ()
    assert advice(case, MemoryUse({"x": 1.0}, None, 1.0, 1.0)) == ()
    assert prediction.document == dpsim.predict(dpsim.read(tmp_path / "s.yaml")).document


def test_advice_can_be_followed(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(LLAMA)
    changed = dpsim.predict(dpsim.read(tmp_path / "s.yaml", ["strategy={kind: fsdp}"]))
    first = dpsim.predict(dpsim.read(tmp_path / "s.yaml"))
    found = next(one for one in first.advice if one.changes == ("strategy: {kind: fsdp}",))
    assert found.memory_bytes == changed.points[0]["memory_bytes"]
    assert f"{found.memory_bytes / 1e9:.1f} GB of" in advice_text(found)
    assert found.fits == changed.points[0]["fits"]


def test_advice_is_no_surer_than_the_table_of_its_change() -> None:
    one = Advice(8, ("optimizer.kind: sgd",), 85.7e9, 85.9e9, "likely", None, "")
    assert advice_text(one) == "It likely fits with optimizer.kind: sgd: 85.7 GB of 85.9 GB."
    sure = Advice(8, ("optimizer.kind: sgd",), 60e9, 85.9e9, "yes", None, "")
    assert advice_text(sure) == "It fits with optimizer.kind: sgd: 60.0 GB of 85.9 GB."


def test_advice_is_in_the_document_of_a_run_where_something_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(LLAMA)
    prediction = dpsim.predict(dpsim.read(tmp_path / "s.yaml"))
    listed = with_advice(prediction)["advice"]
    assert [tuple(one["changes"]) for one in listed] == [one.changes for one in prediction.advice]
    assert set(listed[0]) == {
        "ranks", "changes", "memory_bytes", "capacity_bytes", "fits", "throughput_ratio", "cost",
    }  # fmt: skip
    fits = dpsim.predict(dpsim.read("quickstart"))
    assert with_advice(fits) == fits.document


# -- things ---------------------------------------------------------------------------------------


def shown(thing: str, out: Path | None = None) -> str:
    buffer = io.StringIO()
    console = Console(file=buffer, width=160, highlight=False)
    show_thing(thing, console, nodes=2, sequence_length=2048, out=out)
    return buffer.getvalue()


def test_a_machine_says_what_it_is(tmp_path: Path) -> None:
    described = load_machine("dgx-h100").description
    assert described
    assert described in " ".join(shown("dgx-h100", tmp_path / "m.svg").split())


def test_lists_and_doctor() -> None:
    assert "dgx-h100" in shown("machines")
    assert "resnet50" in shown("models")
    assert "quickstart" in shown("scenarios")
    assert "numpy" in shown("doctor")


def test_machine_is_printed_and_drawn(tmp_path: Path) -> None:
    text = shown("dgx-h100", tmp_path / "picture.png")
    assert "H100" in text
    assert "GB/s" in text
    assert "Sources:" in text
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_machine_is_drawn_where_that_is_asked_for_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of every command, nothing is written without --out."""
    monkeypatch.chdir(tmp_path)
    assert shown("dgx-1v").splitlines()[-1].startswith("-o dgx-1v.png draws it")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["resnet50", "llama-3-8b"])
def test_model_units_sum_to_the_model(name: str) -> None:
    model = load_named(name, 2048)
    text = shown(name)
    assert f"{model.parameters:,}" in text
    total = 0
    for label, count, *_ in units(model):
        times = int(label.rpartition("(")[2].split()[0]) if label.endswith("times)") else 1
        total += times * int(count.replace(",", ""))
    assert total == model.parameters
    assert name in model_names()


def test_devices_strategies_and_scenarios_are_shown() -> None:
    assert "a3-ultra, dgx-h200" in shown("devices")
    assert "strategy: {kind: fsdp}" in shown("strategies")
    assert "collective: {backend: gloo}" in shown("backends")
    assert "4.8 TB/s" in shown("h200")
    assert "bucket_cap_mb" in shown("ddp")
    assert "calibrate: {file: measured/dlperf-resnet50-v100.csv, ranks: 1}" in shown("quickstart")


@pytest.mark.parametrize("thing", ["machines", "resnet50", "h200", "ddp", "zb1p", "quickstart"])
def test_out_for_what_is_not_drawn_is_refused(thing: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"only a machine is drawn; {thing} is printed"):
        shown(thing, tmp_path / "picture.png")
    assert not list(tmp_path.iterdir())


def again(tmp_path: Path, document: Any) -> str:
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return shown(str(file))


def test_an_answer_is_printed_again_from_its_json(tmp_path: Path) -> None:
    for found in (predict(read("worked/ddp_steady")), predict(read("two-3090"))):
        buffer = io.StringIO()
        print_run(found, Console(file=buffer, width=160, highlight=False), None)
        assert again(tmp_path, with_advice(found)) == buffer.getvalue()


def test_an_explanation_is_printed_again_from_its_json(tmp_path: Path) -> None:
    found = predict(read("worked/ddp_steady")).explain()
    buffer = io.StringIO()
    print_explanation(found, Console(file=buffer, width=160, highlight=False))
    assert again(tmp_path, to_json(found)) == buffer.getvalue()


def test_comparisons_plans_and_sweeps_are_printed_again(tmp_path: Path) -> None:
    toy, knob = "worked/ddp_steady", "strategy.bucket_cap_mb"
    commands = {
        "Take": ("compare", toy, "--vary", f"{knob}=1,25"),
        "Which strategy.bucket_cap_mb": ("plan", toy, "--tune", knob),
        "bucket_cap_mb=25": ("sweep", toy, "--grid", f"{knob}=1,25", "-o", str(tmp_path / "s")),
    }
    for says, command in commands.items():
        with redirect_stdout(io.StringIO()) as printed:
            app()([*command, "--json"], standalone_mode=False)
        assert says in again(tmp_path, json.loads(printed.getvalue()))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([1], "is no answer: what run, explain"),
        ({"schema_version": 2}, "answers of version 1 are shown, this one has 2"),
        ({"schema_version": 1}, "is no whole answer"),
        ({"schema_version": 1, "points": [{"ranks": 1}]}, "is no whole answer"),
    ],
)
def test_what_is_no_answer_is_refused(tmp_path: Path, document: Any, says: str) -> None:
    with pytest.raises(Refused, match=rf"answer\.json: .*{says}"):
        again(tmp_path, document)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"schema_version": 1, "schema_version": 1}', "gives the key 'schema_version' twice"),
        ('{"schema_version": 1, "points": [', "is JSON that was cut short"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"schema_version": NaN}', "holds NaN, which is not finite"),
    ],
)
def test_an_answer_is_strict_json(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "answer.json").write_text(text, encoding="utf-8")
    with pytest.raises(Refused, match=rf"answer\.json: {says}"):
        shown(str(tmp_path / "answer.json"))


def test_unknown_thing_names_the_nearest() -> None:
    with pytest.raises(Refused, match="did you mean 'dgx-h100'"):
        shown("dgx-h10")
    with pytest.raises(Refused, match="did you mean 'h200'"):
        shown("h200-sxm")
    with pytest.raises(Refused, match="did you mean 'serving/llama3-8b-vllm-h100'"):
        shown("vllm")
    with pytest.raises(Refused, match="see dpsim show machines"):
        shown("\x1b[2Jzzzz")


def test_sentences_name_the_point_that_they_are_about(tmp_path: Path) -> None:
    """Of points with as many ranks it is the one with the most throughput, in every sentence."""
    path = tmp_path / "fed.yaml"
    batch, sweep = "per_device: 1", "[{input.workers: 1}, {input.workers: 4}, {input.workers: 2}]"
    loader = "loader: torch, workers: 1, decode: 80 ms, sample_bytes: 1 kB, cores: {physical: 8}"
    path.write_text(TOY.format(title="fed", batch=batch, sweep=sweep) + f"input: {{{loader}}}")
    answer = predict(read(path)).answer
    fed = next(text for text in sentences(answer) if text.startswith("The loader takes"))
    assert headline(answer).startswith("On 1 rank with input.workers = 4 a step takes 20 ms")
    assert fed.startswith("The loader takes 20 ms for the batches of a step on 1 rank with input.w")


def test_the_machine_that_points_share_is_told() -> None:
    """Its devices, whose node it is, and its network, with what the scenario overrides."""
    told = {
        "quickstart": "8 x Tesla V100-SXM2-16GB a node as in v100-1x100g, "
        "1 x 100 Gbit/s infiniband",
        "diloco-two-sites": "8 x H100-SXM5-80GB a node as in dgx-h100, 8 x 400 Gbit/s infiniband "
        "and 8 x A100-SXM4-80GB a node as in dgx-a100, 8 x 200 Gbit/s infiniband",
        "amdahl": "",
    }
    for name, machine in told.items():
        assert predict(read(name)).machine == machine
    changed = ["cluster.ranks=16", "cluster.nics_per_node=2", "cluster.inter_node_kind=ethernet",
               "cluster.inter_node_bandwidth=25 Gbit/s"]  # fmt: skip
    machine = predict(read("llama3-8b-h100", changed)).answer.machine
    assert machine == "8 x H100-SXM5-80GB a node as in dgx-h100, 2 x 25 Gbit/s ethernet"
    several = ["cluster.ranks=16", "sweep={cluster.machine: [dgx-h100, dgx-a100]}"]
    assert predict(read("llama3-8b-h100", several)).machine == ""


@pytest.mark.parametrize(
    ("precision", "said"),
    [("{parameters: fp32, compute: fp16}", "fp16"), ("null", "fp32 (by default)")],
)
def test_the_dtype_of_products_stands_above_the_points(precision: str, said: str) -> None:
    found = predict(read("quickstart", [f"precision={precision}", "calibrate=null"]))
    assert found.answer.products == said
    told = [text for text in found.warnings if text.startswith("products are in fp32")]
    faster = "those in fp16 are 7.96 times as fast at the peak of Tesla V100"
    assert bool(told) == (precision == "null") == any(faster in text for text in told)
    assert titles(found.answer)[1].endswith(f", products in {said}")
    swept = predict(read("quickstart", ["sweep={precision.compute: [fp16, fp32]}"]))
    assert swept.answer.products == predict(read("amdahl")).answer.products == ""


def test_an_interval_without_a_measured_step_is_one_of_tuned_code() -> None:
    """Others' steps lie inside it less often than 9 times of 10 (A25)."""
    own, measured = (
        headline(predict(read("quickstart", ["cluster.ranks=8", *sets])).answer)
        for sets in (["calibrate=null"], [])
    )
    assert "(90 % interval of tuned code " in own
    assert "(90 % interval " in measured
    assert "tuned" not in measured
