"""The hand-checked examples of scenarios/worked, on both engines and through the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpsim.core.places import data_folder
from dpsim.describe.scenario import read
from dpsim.predict.prediction import predict

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
    "fsdp2_hybrid": 0.033,
    "fsdp2_groups": 0.032,
    "fsdp1_prefetch": 0.031,
    "fsdp1_by_size": 0.080,
    "fsdp1_no_prefetch": 0.039,
    "data_parallel": 0.03855,
    "compression_top_k": 0.1875,
    "compression_powersgd": 0.0177936,
    "compression_one_bit": 0.35,
    "zero_one_adam": 1.0375,
    "compression_casts": 0.0062,
    "compression_warm_up_bert": 0.004,
    "compression_warm_up_squad": 0.004,
    "ddp_fp16_hook": 0.021225,
    "horovod_first_step": 0.023,
    "zero2_paper": 0.152,
    "zero2_deepspeed": 0.163,
    "backup_workers": 1.3,
    "samples_by_speed": 0.08,
    "host_bound": 0.016,
    "loader_torch": 2.0,
    "loader_torch_slow_batch": 2.0,
    "loader_text": 0.65536,
    "loader_photograph": 0.1044,
    "host_copies": 0.01500285,
    "host_copies_pageable": 0.01 + 122e6 / 12e9 + 2.85e-6 + 0.005,
    "host_copies_pipeline": 0.04100285,
    "loader_mixture": 0.02473,  # as drawn
    "batches_by_measured_speed": 0.032,
    "epoch_of_ten": 0.021,
    "no_backup_workers": 4.0,
    "mirrored": 0.026775,
    "multi_worker_mirrored": 0.023775,
    "pmap": 0.028775,
    "pmap_lhs": 0.02145,
    "megatron_distributed_optimizer": 0.03155,
    "train_steps": 0.192,
    "train_resnet50": 0.306,
    "pipeline_gpipe": 0.033,
    "pipeline_1f1b": 0.033,
    "pipeline_interleaved2": 0.0285,
    "pipeline_interleaved4": 0.02625,
    "pipeline_zb1p": 0.027,
    "pipeline_zb2p": 0.027,
    "pipeline_dualpipe": 0.026,
    "pipeline_zb1p_uneven": 0.0282,
    "pipeline_gpipe_latency": 0.0336,
    "pipeline_1f1b_latency": 0.0346,
    "pipeline_interleaved2_latency": 0.0299,
    "pipeline_interleaved_p2m4": 0.0135,
    "diloco_every_step": 8.0,
    "diloco_500": 1.014,
    "diloco_wan_1": 16.05,
    "diloco_wan_100": 0.21,
    "streaming_wan": 0.185,
    "streaming_wan_fp4": 0.065,
    "streaming_wan_fp4_tau8": 0.05,
    "local_sgd_4": 2.75,
    "gossip_ring": 9.0,
    "gossip_exponential": 13.0,
    "zero_redundancy": 19.0,
    "context_ring": 0.00785,
    "context_ulysses": 0.0104,
    "evaluation": 0.1,
    "repair_shop": 60.0,
    "two_sites": 1.381,
    "frozen": 0.0135,
    # 9 ms of compute, four all-to-alls of 2 MiB, and 4 MB of dense gradients behind the last layer
    "experts": 0.009 + 4 * (0.001 + 0.2e-3) + 0.001 + 4e6 / (10 * 2**20 * 1e3),
}
#: means of random steps
SAMPLED = ("slow_rank", "slow_rank_rare")
#: what workers with clocks of their own do, in tests/test_async_servers.py
CLOCKED = ("ssp_0", "ssp_1", "ssp_3", "async", "server_backup", "servers_two_sites")
FASTER_STEPS = {
    "ddp_steady": 0.021225,
    "ddp_first_iteration": 0.0238875,
    "ddp_cap25": 0.021225,
    "ddp_find_unused": 0.021225,
}


def step(name: str, *sets: str) -> float:
    return predict(read(f"worked/{name}", sets)).step_time_s


def test_every_worked_scenario_has_its_number() -> None:
    known = {*STEPS, *SAMPLED, *CLOCKED}
    assert {path.stem for path in (data_folder("scenarios") / "worked").glob("*.yaml")} == known


@pytest.mark.parametrize("name", SAMPLED)
def test_random_steps_are_the_same_on_both_engines(name: str) -> None:
    """The mean of all steps is compared with its closed form by tests/test_golden.py."""
    few = ("variability.steps=5", "variability.random_slow={probability: 0.001, factor: 1.5}")
    a, b = (step(name, f"engine={engine}", *few) for engine in ("event", "vectorised"))
    assert a == pytest.approx(b, rel=1e-12)
    assert a > 1.0


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
