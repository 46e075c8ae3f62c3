"""The hand-checked examples of scenarios/worked, on both engines and through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpsim.prediction import predict
from dpsim.scenario import folder, read

FASTER = 'collective.bandwidth="20 MiB/ms"'
STEPS = {
    "ddp_steady": 0.02345,
    "ddp_first_iteration": 0.026775,
    "ddp_cap25": 0.023775,
    "ddp_find_unused": 0.02145,
    "fsdp2_compute_bound": 0.031,
    "fsdp2_comm_bound": 0.036,
    "fsdp2_two_communicators": 0.032,
    "fsdp2_keep_gathered": 0.030,
    "horovod_first_step": 0.023,
    "zero2_paper": 0.152,
    "zero2_deepspeed": 0.163,
}
FASTER_STEPS = {
    "ddp_steady": 0.021225,
    "ddp_first_iteration": 0.0238875,
    "ddp_cap25": 0.021225,
    "ddp_find_unused": 0.021225,
}


def step(name: str, *sets: str) -> float:
    return predict(read(f"worked/{name}", sets)).step_time_s


def test_every_worked_scenario_has_its_number() -> None:
    assert {path.stem for path in (folder() / "worked").glob("*.yaml")} == set(STEPS)


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize("name", STEPS)
def test_worked(name: str, engine: str) -> None:
    assert step(name, f"engine={engine}") == pytest.approx(STEPS[name], rel=1e-12)


@pytest.mark.parametrize("engine", ["event", "vectorised"])
@pytest.mark.parametrize("name", FASTER_STEPS)
def test_worked_on_twice_the_bandwidth(name: str, engine: str) -> None:
    found = step(name, FASTER, f"engine={engine}")
    assert found == pytest.approx(FASTER_STEPS[name], rel=1e-12)


def test_worked_on_the_command_line() -> None:
    source = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "dpsim", "run", "worked/ddp_steady", "--set", FASTER, "--json"],
        env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["points"][0]["step_time_s"] == pytest.approx(0.021225, rel=1e-12)
    assert document["scenario"]["collective"]["bandwidth"] == "20971520000.0 B/s"
