"""Pages, as readers without a browser and a real Chromium see them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any
from unittest.mock import patch

import chromium
import pytest
from matplotlib.figure import Figure

from dpsim.checks.diagnosis import sensitivity
from dpsim.cli import _run
from dpsim.describe.scenario import read
from dpsim.predict.prediction import predict
from dpsim.report import life_picture, pipeline
from dpsim.report.pages import Page, Section, Sheet, charts, packed

#: a name that would end a script, an attribute and an element, if it were let
EVIL = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
TOY = """
title: {title}
model: {{dtype: fp32, layers: [
  {{name: {title}, parameters: 400000, forward: 1 ms, backward: 2 ms}},
  {{name: p1, parameters: 300000, forward: 1 ms, backward: 2 ms}}]}}
cluster: {{ranks: 1}}
collective: {{backend: ideal_ring, latency: 100 us, bandwidth: 4 GB/s}}
strategy: {{kind: ddp, torch: "2.13"}}
optimizer: {{kind: none}}
variability: {{jitter: 2 %, steps: 8}}
price: {{per_device_hour: 2 usd}}
training: {{samples: 1e7}}
sweep: {{cluster.ranks: [1, 2, 4, 8]}}
"""


def toy(folder: Path, name: str = "toy") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(TOY.format(title=json.dumps(EVIL)), encoding="utf-8")
    return path


def run_page(folder: Path) -> None:
    from dpsim.report.run import write_all

    write_all(predict(read(str(toy(folder)), ())), folder / "run")


def explain_page(folder: Path) -> None:
    from dpsim.report import explained as report

    found = predict(read(str(toy(folder)), ()))
    shown = report.last_step(found)
    report.write_explanation(found.explain(), shown, folder / "explain", report.layers_of(found))


def sweep_page(cli: Any, folder: Path) -> None:
    grid = ("--grid", "cluster.ranks=1,2,4", "--grid", "batch.per_device=1,2,3", "--jobs", "1")
    code, _, err = cli("sweep", str(toy(folder)), *grid, "-o", str(folder / "sweep"))
    assert code == 0, err


def plan_page(cli: Any, folder: Path) -> None:
    asked = ("--require", "efficiency>=0.5", "--vary", "cluster.ranks=1:16")
    code, _, err = cli("plan", str(toy(folder)), *asked, "-o", str(folder / "plan"))
    assert code == 0, err


def compare_page(cli: Any, folder: Path) -> None:
    paths = [str(toy(folder, name)) for name in ("here", "there")]
    code, _, err = cli("compare", *paths, "--set", "cluster.ranks=4", "-o", str(folder / "compare"))
    assert code == 0, err


def collective_page(cli: Any, folder: Path) -> None:
    asked = ("--cluster", "dgx-h100", "--nodes", "1:4", "--sizes", "64KiB:256MiB", "--factor", "16")
    code, _, err = cli("collective", "all_reduce", *asked, "-o", str(folder / "collective"))
    assert code == 0, err


def accuracy_page(folder: Path) -> None:
    from dpsim.report.accuracy_view import Dot, Titled, View
    from dpsim.report.pages.accuracy import page

    dots = [("ring", [Dot(f"{EVIL} {k}", 1.0 + k, 1.1 + 0.9 * k, 1.0, 20.0) for k in range(9)])]
    tables = [Titled("By fabric", ("fabric", "n"), [(EVIL, "10"), ("b", "9"), ("c", "1,100")])]
    view = View(EVIL, tables, ["Rows: 9 scored."], Figure, lambda: dots, "[us]")
    said = {"table": EVIL, "warnings": [EVIL], "dpsim_version": "1"}
    (folder / "accuracy").mkdir()
    (folder / "accuracy" / "index.html").write_text(page(view, said), encoding="utf-8")


def check_page(cli: Any, folder: Path) -> None:
    measured = ("--step-time", "2=9ms", "--step-time", "4=30ms")
    code, _, err = cli("check", str(toy(folder)), *measured, "-o", str(folder / "check"))
    assert code in (0, 1), err


def check_nccl_page(cli: Any, folder: Path) -> None:
    file = Path(__file__).parent / "data/calibration/old-layout-a100-8gpu-allreduce.log"
    asked = ("--cluster", "dgx-a100", "-o", str(folder / "check_nccl"))
    code, _, err = cli("check-nccl", str(file), *asked)
    assert code in (0, 1), err


def serve_page(cli: Any, folder: Path) -> None:
    told = {
        "title": EVIL,
        "model": {"huggingface": "llama-3.2-1b-tied"},
        "cluster": {"machine": "dgx-h100"},
        "serving": {"engine": "vllm", "replicas": 4},
        "requests": {"count": 40, "concurrency": 16, "input": 100, "output": 20},
    }
    (folder / "served.yaml").write_text(json.dumps(told), encoding="utf-8")
    code, _, err = cli("serve", str(folder / "served.yaml"), "-o", str(folder / "serve"))
    assert code == 0, err


NAMES = (
    "run", "explain", "sweep", "plan", "compare", "collective", "accuracy", "check", "check_nccl",
    "serve",
)  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page, of a scenario whose names attack it."""
    folder = tmp_path_factory.mktemp("pages")
    with patch("dpsim.report.bundle.Bundle.figure", lambda *_: ""):  # pictures have their own tests
        for make in (run_page, explain_page, accuracy_page):
            make(folder)
        for command in (sweep_page, plan_page, compare_page, collective_page, check_page,
                        check_nccl_page, serve_page):  # fmt: skip
            command(_command, folder)
    return {name: folder / name / "index.html" for name in NAMES}


def _command(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with (
        patch("sys.argv", ["dpsim", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        return _run(), out.getvalue(), err.getvalue()


# -- the file -------------------------------------------------------------------------------------


class Found(HTMLParser):
    """Elements of a page with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag = self.elements[-1][0] if self.elements else ""
        if tag in self.texts:
            self.texts[tag].append(data)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_one_file_whose_policy_lets_only_its_own_script_run(
    name: str, pages: dict[str, Path]
) -> None:
    text = pages[name].read_text("utf-8")
    found = Found(text)
    kinds = [tag for tag, _ in found.elements]
    assert kinds.count("script") == 2
    assert not {"img", "link", "iframe", "object", "form", "base"} & set(kinds)
    for _, attributes in found.elements:
        assert not {"style", "src", "href"} & attributes.keys()
        assert not any(key.startswith("on") for key in attributes)
    policy = next(a["content"] for _, a in found.elements if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    data, script = (part for part in found.texts["script"] if part.strip())
    for source in (script, *filter(str.strip, found.texts["style"])):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert json.loads(data).keys() == {
        a["data-figure"] for tag, a in found.elements if tag == "figure"
    }
    assert len(text) < 150_000


def test_data_cannot_end_their_element() -> None:
    said = packed({EVIL: [EVIL, "\u2028&", 1 / 3]})
    assert not re.search("[<>&\u2028]", said)
    assert json.loads(said) == {EVIL: [EVIL, "\u2028&", 0.3333333]}


def test_any_number_of_columns_is_set_for_paper() -> None:
    for count, kind in ((10, ""), (11, "many"), (17, "many crowd")):
        heads = [f"a long head {k}" for k in range(count)]
        assert f'<table class="{kind}">' in Sheet((heads, [heads])).html()


@pytest.mark.parametrize("name", NAMES)
def test_tables_name_their_rows_and_columns(name: str, pages: dict[str, Path]) -> None:
    heads = [a for tag, a in Found(pages[name].read_text("utf-8")).elements if tag == "th"]
    assert {a.get("scope") for a in heads} == {"col", "row"}


def test_the_parts_of_a_step_sum_to_it(pages: dict[str, Path]) -> None:
    text = pages["run"].read_text("utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    document = json.loads((pages["run"].parent / "prediction.json").read_text("utf-8"))
    for row, point in zip(data["steps"]["rows"], document["points"], strict=True):
        assert sum(row["values"]) == pytest.approx(point["step_time_s"] * 1e3, rel=1e-6)
    (band,) = {data[name]["bandNote"].rpartition(": ")[2] for name in ("growth", "efficiency")}
    causes = document["points"][-1]["interval_causes"]
    assert band == max(causes, key=lambda name: causes[name][1] / causes[name][0])


def test_large_sizes_stand_beside_what_healthy_machines_reach(pages: dict[str, Path]) -> None:
    """The lines by which they are judged, from 64 MiB on as far below what is expected."""
    text = pages["check_nccl"].read_text("utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    series = {one["name"]: one["points"] for one in data["busbw0"]["series"]}
    expected = {at["x"]: at["y"][0][0] for at in series["1 node, 8 ranks"]}
    known = sensitivity("nvswitch")
    for many, ratio in (("19 of 20", known.doubtful), ("99 of 100", known.low)):
        points = series[f"{many} healthy machines are faster"]
        assert [at["x"] for at in points] == [size for size in expected if size > 0.999 * 2**26]
        for at in points:
            assert at["y"][0][0] == pytest.approx(expected[at["x"]] / ratio, rel=1e-6)


def test_a_legend_tells_diamonds_on_lines_from_measured_ones(pages: dict[str, Path]) -> None:
    """Where nothing changes on a line, no diamond is one of a change."""
    for name in ("collective", "check_nccl"):
        text = pages[name].read_text("utf-8")
        data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
        for spec in (found for found in data.values() if found.get("kind") == "lines"):
            changes = any(p.get("change") for one in spec["series"] for p in one["points"])
            measured = any(one.get("style") == "marks" for one in spec["series"])
            assert measured == (name == "check_nccl")
            assert ("a diamond on a line is" in spec["bandNote"]) == (changes and measured)
            assert ("a diamond is where" in spec["bandNote"]) == (changes and not measured)


def test_every_kind_of_picture_has_its_colour_on_pages() -> None:
    style = resources.files("dpsim.report.pages").joinpath("page.css").read_text("utf-8").lower()
    for kinds in (pipeline.KINDS, life_picture.KINDS):
        for _, drawn in kinds.values():
            assert f"--c{charts.colour(drawn)}: {drawn.lower()};" in style


# -- in a browser ---------------------------------------------------------------------------------


def browsing(test: Any) -> Any:
    """Marks a test that needs the browser."""
    missing = pytest.mark.skipif(chromium.found() is None, reason="there is no Chromium here")
    return pytest.mark.browser(missing(test))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    try:
        made = chromium.Browser(tmp_path_factory.mktemp("chromium"))
    except (AssertionError, OSError) as error:
        pytest.skip(f"Chromium does not start here: {error}")
    yield made
    made.close()


#: what of the page is wider than the window, cut off, too small, or has too little contrast
LOOK = """(() => {
  const rgb = (said) => (said.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const ground = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const c = rgb(getComputedStyle(at).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const wide = document.documentElement.scrollWidth - innerWidth, faint = [], small = [], cut = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, style = getComputedStyle(e);
    const box = e.getBoundingClientRect();
    if (!walk.currentNode.textContent.trim() || !box.width) continue;
    if (e.closest("script, noscript, option")) continue;
    const drawn = e.namespaceURI.endsWith("svg");
    let under = ground(e);
    if (drawn && /\\b(box|cell)\\b/.test(e.getAttribute("class") || "")) {
      const below = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
      const shape = below.find((b) => b.tagName === "rect");
      if (shape) under = rgb(getComputedStyle(shape).fill);
    }
    const [a, b] = [light(rgb(drawn ? style.fill : style.color)), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const said = e.textContent.slice(0, 40);
    if (ratio < 4.5) faint.push([said, ratio]);
    if (parseFloat(style.fontSize) < (matchMedia("print").matches ? 8 : 10.5)) small.push(said);
    if (drawn) {
      const frame = e.ownerSVGElement.getBoundingClientRect();
      if (box.right > frame.right + 2 || box.left < frame.left - 2) cut.push(said);
    }
  }
  return { wide, faint, small, cut };
})()"""
#: how far tables have to be moved to be seen whole
ASIDE = """Math.max(...[...document.querySelectorAll(".card:has(table)")]
  .map((card) => card.scrollWidth - card.clientWidth))"""
FINE = {"wide": 0, "faint": [], "small": [], "cut": []}


@browsing
@pytest.mark.parametrize("name", NAMES)
def test_a_page_can_be_read_at_any_width_in_the_dark_and_on_paper(
    name: str, pages: dict[str, Path], browser: chromium.Browser
) -> None:
    browser.errors.clear()
    browser.show(1280, 6000)
    browser.open(pages[name])
    assert browser.run("document.querySelectorAll('figure svg[tabindex]').length") > 0
    assert browser.run(LOOK) == FINE
    if name == "check_nccl":  # its last column is the one that is looked for
        assert browser.run(ASIDE) == 0
    browser.show(400, 6000, dark=True)
    assert browser.run(LOOK) == FINE
    browser.show(718, 6000, media="print")  # A4 without its margins
    assert browser.run(LOOK) == FINE
    cells = "[...document.querySelectorAll('th, td')].map((e) => e.getBoundingClientRect().right)"
    assert browser.run(f"Math.max(0, ...{cells})") <= 718
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.show(1280)
    assert browser.errors == []


#: every control of every figure once, in order: those that changed nothing that is drawn
CONTROLS = """(async () => {
  const dead = [], settle = () => new Promise((done) => requestAnimationFrame(done));
  let count = 0;
  for (const figure of document.querySelectorAll("figure")) {
    const plot = figure.querySelector(".plot");
    const act = async (control, does) => {
      const before = plot.innerHTML;
      does();
      await settle();
      count++;
      if (plot.innerHTML === before) dead.push([figure.dataset.figure, control.outerHTML]);
    };
    for (const control of figure.querySelectorAll("button[aria-pressed]")) {
      await act(control, () => control.click());
      await act(control, () => control.click());
    }
    for (const control of figure.querySelectorAll("select")) {
      for (const value of [...control.options].map((o) => o.value).reverse()) {
        if (control.value === value) continue;
        await act(control, () => {
          control.value = value;
          control.dispatchEvent(new Event("change"));
        });
      }
    }
    for (const control of figure.querySelectorAll("input[type=range]")) {
      await act(control, () => {
        control.value = Number(control.value) ? 0 : 1;
        control.dispatchEvent(new Event("input"));
      });
    }
    const zoom = [...figure.querySelectorAll(".controls button:not([aria-pressed])")];
    if (zoom.length) {
      const [into, out, earlier, later, all] = zoom;
      for (const one of [into, earlier, later, out, into, all]) await act(one, () => one.click());
    }
  }
  return [count, dead];
})()"""


@browsing
@pytest.mark.parametrize("name", NAMES)
def test_every_control_changes_what_is_drawn(
    name: str, pages: dict[str, Path], browser: chromium.Browser
) -> None:
    browser.errors.clear()
    browser.open(pages[name])
    count, dead = browser.run(CONTROLS)
    assert dead == []
    assert count >= (0 if name == "compare" else 2)
    assert browser.errors == []


def keyed(figure: str, *keys: str) -> str:
    """Press `keys` in a figure's drawing; what its tip then says."""
    pressed = "".join(f"press({json.dumps(key)});" for key in keys)
    return f"""(() => {{
      const figure = document.querySelector('figure[data-figure={figure}]');
      const press = (key) => figure.querySelector('svg[tabindex]').dispatchEvent(
        new KeyboardEvent('keydown', {{ key, bubbles: true }}));
      {pressed}
      const tip = figure.querySelector('.tip');
      return tip.hidden ? '' : tip.innerText;
    }})()"""


@browsing
def test_keys_walk_through_figures_and_tips_tell_values(
    pages: dict[str, Path], browser: chromium.Browser
) -> None:
    browser.open(pages["run"])
    document = json.loads((pages["run"].parent / "prediction.json").read_text("utf-8"))
    said = browser.run(keyed("growth", "ArrowRight", "ArrowRight"))
    assert "2 ranks" in said
    assert f"efficiency: {document['points'][1]['efficiency'] * 100:.1f} %" in said
    assert browser.run(keyed("growth", "Escape")) == ""
    browser.open(pages["explain"])
    said = browser.run(keyed("timeline", "ArrowRight"))
    assert "what: forward" in said
    assert f"layer {' '.join(EVIL.split())}" in said
    buckets = "[...document.querySelectorAll('[data-figure=timeline] .plot rect.f1')]"
    pointed = f"{buckets}.at(-1).dispatchEvent(new PointerEvent('pointerenter'))"
    tip = "document.querySelector('[data-figure=timeline] .tip').innerText"
    said = browser.run(f"({pointed}, {tip})")
    assert re.search(r"size: [\d.]+ [kM]B", said)
    assert "tensors: " in said
    browser.open(pages["sweep"])
    where = "document.querySelector('.here').innerText"
    before = browser.run(where)
    keys = "document.querySelectorAll('.pair svg[tabindex]')[1].dispatchEvent(new KeyboardEvent("
    browser.run(keys + "'keydown', { key: 'ArrowLeft', bubbles: true }))")
    assert browser.run(where) != before


@browsing
@pytest.mark.parametrize("count", [6, 16, 40])
def test_paper_keeps_all_columns(count: int, browser: chromium.Browser, tmp_path: Path) -> None:
    cells = [f"{k + 100}.5 ms to {k + 200} ms" for k in range(count)]
    sheet = Sheet(([f"speed-up {k}" for k in range(count)], [cells, cells]))
    (tmp_path / "wide.html").write_text(Page("t", "t", [Section("", [sheet])], "").render())
    browser.show(718, media="print")
    browser.open(tmp_path / "wide.html")
    right = "[...document.querySelectorAll('th, td')].map((e) => e.getBoundingClientRect().right)"
    assert browser.run(f"Math.max(...{right})") <= 718


@browsing
def test_tables_sort_by_value_and_not_by_letters(
    pages: dict[str, Path], browser: chromium.Browser
) -> None:
    browser.open(pages["accuracy"])
    column = "[...document.querySelectorAll('tbody td')].map((e) => e.innerText)"
    click = "document.querySelectorAll('th button')[1].click()"
    assert browser.run(f"({click}, {column})") == ["9", "10", "1,100"]
    assert browser.run(f"({click}, {column})") == ["1,100", "10", "9"]


@browsing
def test_the_policy_keeps_other_scripts_from_running(
    pages: dict[str, Path], browser: chromium.Browser
) -> None:
    browser.open(pages["run"])
    browser.errors.clear()
    script = "Object.assign(document.createElement('script'), { textContent: 'x = 1' })"
    browser.run(f"document.body.append({script})")
    browser.drawn()
    assert browser.run("typeof x") == "undefined"
    assert any("Content Security Policy" in said for said in browser.errors)
