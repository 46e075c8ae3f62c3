"""The command line: exit codes, one message, one document, and nothing written on refusal."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpsim
from dpsim.cli import _run

UNFIT = """
model: {huggingface: llama-3-8b, sequence_length: 4096}
cluster: {machine: dgx-h100, nodes: 1}
strategy: {kind: ddp}
precision: {parameters: fp32, compute: bf16}
batch: {per_device: 1}
"""
ROOT = Path(__file__).parent.parent


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
    )


def test_module_is_the_command(tmp_path: Path) -> None:
    done = python("-m", "dpsim", "run", "worked/ddp_steady", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["points"][0]["step_time_s"] == pytest.approx(0.02345, rel=1e-12)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize(("scenario", "code"), [("worked/ddp_steady", 3), ("nothing-such", 2)])
def test_where_nothing_can_be_written_the_exit_code_says_why(scenario: str, code: int) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "dpsim", "run", scenario, "--json"]
        assert (
            subprocess.run(command, stdout=full, stderr=full, cwd=ROOT, check=False).returncode
            == code
        )


def test_help_tells_every_command_in_a_whole_sentence(cli) -> None:  # type: ignore[no-untyped-def]
    lines = cli("--help")[1].partition("Commands:")[2].strip().splitlines()
    assert len(lines) > 15
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


def test_help_is_light(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv = ['dpsim', '--help']\n"
        "from dpsim.cli import _run\n"
        "code = _run()\n"
        "heavy = {'numpy', 'pydantic', 'matplotlib', 'torch', 'pandas', 'networkx', 'simpy'}\n"
        "print(code, sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = python("-c", script, cwd=tmp_path)
    assert done.stderr.strip() == "0 []"
    assert "Predict how data-parallel training scales" in done.stdout


def test_commands_are_listed_in_the_order_in_which_they_are_needed(cli) -> None:  # type: ignore[no-untyped-def]
    listed = re.findall(r"^  ([a-z-]+)  ", cli("--help")[1].partition("Commands:")[2], re.MULTILINE)
    assert listed == [
        "run", "sweep", "plan", "explain", "compare", "serve", "collective", "check", "check-nccl",
        "calibrate", "import", "measure", "show", "schema", "stragglers", "incidents", "validate",
    ]  # fmt: skip


def test_version(cli) -> None:  # type: ignore[no-untyped-def]
    assert cli("--version") == (0, f"{dpsim.__version__}\n", "")


def test_json_is_one_document_equal_to_the_file(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = cli("run", "worked/ddp_steady", "--json", "-o", "out")
    assert (code, err) == (0, "")
    assert out == (tmp_path / "out" / "prediction.json").read_text(encoding="utf-8")
    assert json.loads(out) == dpsim.predict(dpsim.read("worked/ddp_steady")).document


def test_explain_json_adds_reasons_to_the_same_numbers(cli) -> None:  # type: ignore[no-untyped-def]
    _, plain, _ = cli("run", "worked/ddp_steady", "--json")
    code, out, _ = cli("explain", "worked/ddp_steady", "--json")
    (point,), (before,) = json.loads(out)["points"], json.loads(plain)["points"]
    assert code == 0
    assert before.items() <= point.items()
    assert point["critical_path"]
    assert point["what_if"]


def test_not_fitting_is_a_finding(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "big.yaml").write_text(UNFIT)
    code, out, err = cli("run", "big.yaml")
    assert (code, err) == (1, "")
    assert "does not fit" in out
    assert "It fits with strategy: {kind: fsdp}" in out


def test_run_and_explain_print_tables(cli) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = cli("run", "worked/ddp_steady", "-o", "out")
    assert code == 0
    assert "Weak scaling" in out
    assert "23.45 ms" in out
    assert "index.html" in out
    code, out, _ = cli("explain", "worked/ddp_steady")
    assert code == 0
    assert "Critical path" in out


REFUSED = [
    ("run", "no-such-scenario", "-o", "out"),
    ("run", "worked/ddp_steady", "-o", "out", "--set", "cluster.ranks=zero"),
    ("run", "worked/ddp_steady", "-o", "out", "--set", "cluster.rank=2"),
    ("run", "worked/ddp_steady", "-o", "out", "--nonsense"),
    ("run", "worked/ddp_steady", "-o", "taken"),
    ("explain", "broken.yaml"),
    ("show", "dgx-h10"),
    ("nonsense",),
]


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_refusals_are_one_message_and_write_nothing(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "broken.yaml").write_text("model: [\x00")
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("dpsim: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.yaml", "taken"]
    assert (tmp_path / "taken").read_text() == "mine"


def test_refusal_has_no_escape_sequences(cli) -> None:  # type: ignore[no-untyped-def]
    code, _, err = cli("show", "\x1b[31mred\x07")
    assert code == 2
    assert "\x1b" not in err


def test_schema_is_json(cli) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = cli("schema")
    assert code == 0
    assert json.loads(out)["$schema"]


@pytest.mark.parametrize("number", ["1_0", "\uff11", "1.5", "0x10", "ten", "1e3", "9" * 30])
@pytest.mark.parametrize("form", ["--jobs {}", "--jobs={}"])
def test_whole_numbers_of_options_are_ascii_digits(
    number: str, form: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python itself takes 1_0 for 10."""
    monkeypatch.setattr("sys.argv", ["dpsim", "validate", "x.csv", *form.format(number).split()])
    assert _run() == 2
    assert capsys.readouterr().err.endswith(f"--jobs: {number!r} is not a whole number\n")


def test_files_given_to_a_bundled_scenario_are_in_the_current_folder(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """One's own machine, under `--set`; what lies elsewhere is refused as ever, and a scenario of
    one's own still has its files beside it."""
    text = (Path(__file__).parent.parent / "topologies/dgx-1v.yaml").read_text("utf-8")
    (tmp_path / "mine.yaml").write_text(text.replace("name: dgx-1v", "name: mine"), "utf-8")
    cluster = "cluster={ranks: 4, machine: mine.yaml}"
    code, out, err = cli("run", "worked/ddp_steady", "--set", cluster, "--json")
    assert code == 0, err
    assert json.loads(out)["scenario"]["cluster"]["machine"] == "mine.yaml"
    for name, said in (("other.yaml", "there is no file"), ("../mine.yaml", "lies outside")):
        code, out, err = cli("run", "quickstart", "--set", f"cluster.machine={name}")
        assert (code, out) == (2, "")
        assert said in err
    (tmp_path / "job").mkdir()
    own = "model: {name: resnet50}\ncluster: {machine: mine.yaml, ranks: 2}\n"
    (tmp_path / "job/own.yaml").write_text(f"{own}strategy: {{kind: ddp}}\n", "utf-8")
    assert "there is no file 'mine.yaml'" in cli("run", "job/own.yaml")[2]


def test_a_title_says_what_set_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    """Else "on 1 to 8 GPUs" stands above what was predicted of others."""
    run = dpsim.read("quickstart", ["cluster.nodes=2", "batch.per_device=32"])
    assert run.called.endswith("NIC, with cluster.nodes=2, batch.per_device=32")
    assert dpsim.predict(run).document["name"] == run.called
    assert dpsim.read("quickstart").called == dpsim.read("quickstart").name
    several = dpsim.read("quickstart", [f"compute.{k}=0.1" for k in ("contention", "spread")]
                         + ["seed=3", "engine=event"])  # fmt: skip
    assert several.called.endswith("compute.spread=0.1, seed=3 and 1 more")
