"""Manners of the command line: pipes, one document, quiet, defaults of the user's, completion."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dpsim
from dpsim.cli import completion
from dpsim.cli.app import _commands, called
from dpsim.predict.document import from_json, to_json
from dpsim.report import checks_schema, console

TOY = """
model: {layers: [{name: a, parameters: 1000, forward: 1 ms, backward: 2 ms}]}
cluster: {ranks: 2}
collective: {backend: ideal, latency: 1 ms, bandwidth: 1 GB/s}
strategy: {kind: ddp}
optimizer: {kind: none}
"""


@pytest.fixture(autouse=True)
def no_defaults_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("DPSIM_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put `text` on standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def configure(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    (folder / "defaults.yaml").write_text(text)
    monkeypatch.setenv("DPSIM_CONFIG", str(folder / "defaults.yaml"))


# -- pipes ----------------------------------------------------------------------------------------


def test_a_scenario_comes_from_standard_input_and_its_files_from_here(  # type: ignore[no-untyped-def]
    cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "measured.csv").write_text("ranks,step_time_s\n2,0.004\n")
    give(monkeypatch, TOY + "measured: measured.csv\n")
    code, out, err = cli("run", "-", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said["name"] == "standard input"
    assert said["measured"][0]["ranks"] == 2


def test_what_is_wrong_on_standard_input_has_its_line(  # type: ignore[no-untyped-def]
    cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, TOY.replace("ranks: 2", "ranks: 0"))
    assert cli("run", "-")[0::2] == (2, "dpsim: -:3: cluster.ranks: 0 is not in 1 … 1,048,576\n")


def test_a_scenario_comes_from_a_pipe_of_the_shell(cli) -> None:  # type: ignore[no-untyped-def]
    """What bash makes of ``<(command)``."""
    reading, writing = os.pipe()
    thread = threading.Thread(target=lambda: (os.write(writing, TOY.encode()), os.close(writing)))
    thread.start()
    code, out, err = cli("compare", f"/dev/fd/{reading}", "--vary", "cluster.ranks=2,4", "--json")
    thread.join()
    os.close(reading)
    assert (code, err) == (0, "")
    assert len(json.loads(out)["candidates"]) == 2


@pytest.mark.parametrize("command", ["run", "explain", "compare"])
def test_the_output_called_minus_is_the_document(cli, command: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "toy.yaml").write_text(TOY)
    document = cli(command, "toy.yaml", "--json")
    assert cli(command, "toy.yaml", "-o", "-") == document
    assert document[2] == ""
    assert [path.name for path in tmp_path.iterdir()] == ["toy.yaml"]


def test_a_file_can_go_to_standard_output(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    table = tmp_path / "steps.csv"
    table.write_text("step,seconds\n" + "".join(f"{k},0.1{k % 7}\n" for k in range(30)))
    assert cli("calibrate", "steps.csv", "--ranks", "1", "-o", "made.yaml")[0] == 0
    code, out, err = cli("calibrate", "steps.csv", "--ranks", "1", "-o", "-")
    assert (code, out, err) == (0, (tmp_path / "made.yaml").read_text(), "")
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 8 train.py\n")
    asked = ("import", "run.sh", "--model", "resnet50", "--machine", "dgx-1v", "-o")
    assert cli(*asked, "mine.yaml")[0] == 0
    assert cli(*asked, "-") == (0, (tmp_path / "mine.yaml").read_text(), "")


# -- how much is said -----------------------------------------------------------------------------


def test_explain_leaves_operations_out_unless_they_are_asked_for(cli) -> None:  # type: ignore[no-untyped-def]
    short, whole = (
        json.loads(cli("explain", "worked/ddp_steady", "--json", *more)[1])
        for more in ((), ("--operations",))
    )
    assert whole["points"][0].pop("operations")
    assert short == whole


def test_quiet_leaves_the_exit_code_the_document_and_errors(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "toy.yaml").write_text(TOY)
    grid = ("sweep", "toy.yaml", "--grid", "cluster.ranks=2,4", "--jobs", "1")
    assert "2 points" in cli(*grid)[2]
    assert cli(*grid, "--quiet") == (0, "", "")
    assert len(json.loads(cli(*grid, "-q", "--json")[1])["points"]) == 2
    assert cli("run", "nothing-such", "-q")[0] == 2
    assert cli("show", "dgx-1v", "-q", "-o", "node.graphml") == (0, "", "")
    assert (tmp_path / "node.graphml").exists()
    assert "Weak scaling" in cli("run", "toy.yaml")[1]  # it does not outlast its command


def test_every_command_has_json_and_quiet(cli) -> None:  # type: ignore[no-untyped-def]
    for module in _commands():
        name = called(module.__name__.rpartition(".")[2])
        code, out, _ = cli(name, "-h")
        assert code == 0
        assert "--quiet" in out
        assert "--json" in out, name


@pytest.mark.parametrize("thing", ["v100-1x100g", "h200", "ddp", "zb1p", "quickstart"])
def test_show_says_everything_as_json_and_draws_nothing_unasked(  # type: ignore[no-untyped-def]
    cli, thing: str, tmp_path: Path
) -> None:
    code, out, err = cli("show", thing, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)
    assert list(tmp_path.iterdir()) == []
    assert cli("show", "nothing-such", "--json")[0] == 2


def test_a_device_is_shown_by_its_full_name_and_nothing_asked_is_told_what_there_is(cli) -> None:  # type: ignore[no-untyped-def]
    assert cli("show", "h100-sxm5-80gb") == cli("show", "h100-sxm")
    assert cli("show", "H100-SXM5-80GB", "--json") == cli("show", "h100-sxm", "--json")
    for asked in (("show",), ("show", "--json")):
        code, out, err = cli(*asked)
        assert (code, out) == (2, "")
        assert "nothing is said to show; machines, devices, models" in err


def test_a_configuration_of_a_model_is_shown_as_the_model_is(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source = Path(dpsim.__file__).parent / "models" / "configs" / "qwen2.5-0.5b.json"
    path = tmp_path / "config.json"
    path.write_bytes(source.read_bytes())
    shown, named = (cli("show", name, "--json")[1] for name in (str(path), "qwen2.5-0.5b"))
    assert json.loads(shown) == {**json.loads(named), "name": "config"}
    code, out, _ = cli("show", str(path))
    assert code == 0
    assert f"{json.loads(named)['parameters']:,}" in out
    path.write_text('{"train_batch_size": 8}')
    code, _, err = cli("show", str(path))
    assert code == 2
    assert "dpsim import tells what other files are" in err


def test_lines_are_as_long_as_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert console().width == 77
    monkeypatch.setenv("COLUMNS", "wide")
    assert console().width == 118


# -- defaults -------------------------------------------------------------------------------------


def ranks(cli, *more: str) -> list[int]:  # type: ignore[no-untyped-def]
    code, out, err = cli("run", "worked/ddp_steady", "--json", *more)
    assert (code, err) == (0, "")
    return [point["ranks"] for point in json.loads(out)["points"]]


def test_the_command_line_counts_most_then_the_environment_then_the_file(  # type: ignore[no-untyped-def]
    cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(monkeypatch, tmp_path, "run: {set: [cluster.ranks=3]}\nevery: {jobs: 1}\n")
    assert ranks(cli) == [3]
    monkeypatch.setenv("DPSIM_SET", "cluster.ranks=4")
    assert ranks(cli) == [4]
    monkeypatch.setenv("DPSIM_RUN_SET", "cluster.ranks=5")
    assert ranks(cli) == [5]
    assert ranks(cli, "--set", "cluster.ranks=6") == [6]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("DPSIM_SWEEP_JOBZ", "did you mean 'DPSIM_SWEEP_JOBS"),
        ("DPSIM_WHATEVER", "no option has it"),
    ],
)
def test_a_variable_that_no_option_has_is_refused_by_name(  # type: ignore[no-untyped-def]
    cli, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv(name, "4")
    code, out, err = cli("run", "worked/ddp_steady")
    assert (code, out) == (2, "")
    assert f"environment: {name}: {said}" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runn: {json: true}", "runn: there is none; did you mean 'run'?"),
        ("run: {jsen: true}", "run.jsen: there is none; did you mean 'json'?"),
        ("run: true", "run: a mapping of options is needed"),
        ("run: [", "not valid YAML"),
    ],
)
def test_a_wrong_default_is_refused_where_it_stands(  # type: ignore[no-untyped-def]
    cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, said: str
) -> None:
    configure(monkeypatch, tmp_path, text)
    code, out, err = cli("run", "worked/ddp_steady")
    assert (code, out) == (2, "")
    assert "defaults.yaml" in err
    assert said in err
    assert cli("run", "--help")[0] == 0


# -- completion -----------------------------------------------------------------------------------


def test_shells_are_offered_names_and_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").touch()
    Path("sub").mkdir()
    assert completion.scenarios("quick") == ["quickstart"]
    assert "worked/ddp_steady" in completion.scenarios("worked/")
    assert "mine.yaml" in completion.scenarios("mi")
    assert completion.scenarios("su") == ["sub/"]
    assert completion.machines("dgx-h") == ["dgx-h100", "dgx-h200"]
    assert {"cluster.nodes=", "strategy.kind=", "batch.per_device="} <= set(completion.keys(""))
    assert completion.keys("cluster.machine=dgx-h1") == ["cluster.machine=dgx-h100"]
    assert completion.keys("cluster.device=h20") == ["cluster.device=h20", "cluster.device=h200"]
    assert "h100-sxm" in completion.things("h100")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_asks_for_what_is_offered(  # type: ignore[no-untyped-def]
    cli, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    monkeypatch.setenv("_DPSIM_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", "dpsim run quickst")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "dpsim run quickst")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert "quickstart" in cli()[1]


# -- other systems --------------------------------------------------------------------------------


def test_without_posix_locks_a_sweep_takes_those_of_windows(  # type: ignore[no-untyped-def]
    cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As far as can be known here: the calls are those of Python's msvcrt, untried on Windows."""
    held: list[tuple[int, int]] = []

    def locking(file: int, mode: int, count: int) -> None:
        place = os.lseek(file, 0, os.SEEK_CUR)
        if (place, count) in held:
            raise PermissionError
        held.append((place, count))

    (tmp_path / "toy.yaml").write_text(TOY)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    grid = ("sweep", "toy.yaml", "--grid", "cluster.ranks=2,4", "--jobs", "1", "-o", "out", "-q")
    assert cli(*grid) == (0, "", "")
    assert held == [(1 << 20, 1)]
    code, out, err = cli(*grid)  # nobody has let go of it
    assert (code, out) == (2, "")
    assert "is writing there" in err


# -- schemas of answers ---------------------------------------------------------------------------

JOBS = "JobID|State|Start|End|NNodes\n1|NODE_FAIL|2026-01-01T00:00:00|2026-01-02T00:00:00|4\n"
TIMES = "rank,step,seconds\n" + "".join(f"{k % 2},{k // 2},{0.1 + k % 2}\n" for k in range(40))
NCCL = Path(__file__).parent / "data/calibration/old-layout-a100-8gpu-allreduce.log"


@pytest.mark.parametrize(
    ("asked", "typed"),
    [
        (("check", "toy.yaml", "--step-time", "2=9ms"), checks_schema.StepVerdictAnswer),
        (("check-nccl", str(NCCL), "--cluster", "dgx-a100"), checks_schema.NcclVerdictAnswer),
        (("stragglers", "times.csv"), checks_schema.StragglersAnswer),
        (("incidents", "jobs.txt"), checks_schema.IncidentsAnswer),
        (("import", "run.sh", "--machine", "dgx-1v"), checks_schema.AccountAnswer),
    ],
)
def test_answers_are_what_their_schemas_say(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, asked: tuple[str, ...], typed: Any
) -> None:
    (tmp_path / "toy.yaml").write_text(TOY)
    (tmp_path / "times.csv").write_text(TIMES)
    (tmp_path / "jobs.txt").write_text(JOBS)
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 8 train.py\n")
    document = json.loads(cli(*asked, "--json")[1])
    assert json.loads(json.dumps(to_json(from_json(typed, document)))) == document
    whole = json.loads(cli("schema", asked[0])[1])
    schema = whole.get("anyOf", [whole])[0]
    assert set(schema["required"]) <= set(document) <= set(schema["properties"])
