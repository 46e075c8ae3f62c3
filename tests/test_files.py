"""Files that people have: what each is, what becomes of it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpsim.cli.app import app
from dpsim.core.record import Refused
from dpsim.core.yamlfile import loads
from dpsim.describe.scenario import load
from dpsim.describe.scenario import read as read_scenario
from dpsim.describe.sections import Batch
from dpsim.machines.machine import load_machine
from dpsim.measurements import brought
from dpsim.measurements.kinds import Account, Wishes, kinds, text_made
from dpsim.measurements.logs import chakra, nccl_lines
from dpsim.measurements.logs.chakra import ChakraNode
from dpsim.measurements.networks import hostlist
from dpsim.measurements.readers import read_any
from dpsim.predict.prediction import predict
from dpsim.report.explained import last_step
from dpsim.report.trace import write_trace

DATA = Path(__file__).parent / "data" / "files"


def bring(name: str, /, **wanted: Any) -> Account:
    return brought.bring([DATA / name], Wishes(**wanted), load)


def written(folder: Path, text: str, name: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def said(account: Account, how: str) -> str:
    return "\n".join(entry.text for entry in account.entries if entry.how == how)


def scenario(name: str, **wanted: Any) -> dict[str, Any]:
    account = bring(name, **{"machine": "dgx-a100", "model": "resnet50", **wanted})
    assert account.makes == "scenario"
    assert account.document is not None
    return dict(account.document)


# --- what joins nodes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nodes", "tiers", "domains"),
    [
        ("slurm-topology-tree.conf", 96, (12, 6, 1), ()),
        ("slurm-topology-tree.yaml", 2, (1, 1), ()),
        ("slurm-topology-block.conf", 96, (), (8,) * 12),
        ("topograph-model-nvl72.yaml", 72, (4, 2, 1), (18,) * 4),
        ("topograph-model-dual-xclr-irregular.yaml", 255, (29, 2, 1), (124, 131)),
        ("topograph-netq-computeNodes.json", 2, (), (2,)),
        ("topograph-netq-topologyGraph.json.gz", 8, (2, 1), ()),
        ("ibnetdiscover-hdr-superbench.txt", 10, (5, 2, 1), ()),
        ("ibnetdiscover-ndr-dgx.out.gz", 120, (31, 9), ()),
        ("ibnetdiscover-p-edr.out", 3, (2, 1), ()),
        ("ibnetdiscover-p-hdr.out", 1, (1,), ()),
    ],
)
def test_nodes_switches_and_domains_are_counted(
    name: str, nodes: int, tiers: tuple[int, ...], domains: tuple[int, ...]
) -> None:
    text = said(bring(name), "taken")
    assert f"{nodes} node" in text
    for number, count in enumerate(tiers):
        place = "nodes are plugged into" if number == 0 else f"tier {number} above them"
        assert f"{count} switch{'es' * (count > 1)}: {place}" in text
    assert ("NVLink domain" in text) == bool(domains)
    if domains:
        assert f"{len(domains)} NVLink domain" in text
        assert str(max(domains)) in text


def test_cables_that_are_counted_make_rails_and_oversubscription() -> None:
    account = bring("ibnetdiscover-ndr-dgx.out.gz", machine="dgx-h100")
    assert account.document is not None
    network = account.document["network"]
    assert (network["family"], network["nodes_per_leaf"]) == ("rail_optimized", 18)
    assert network["oversubscription"] == pytest.approx(542 / 532, rel=1e-3)
    assert "40 SHARP aggregation nodes" in said(account, "ignored")
    assert "74 adapters of hosts without a name" in said(account, "assumed")


def test_tiers_become_one_spine_with_the_product_of_their_oversubscriptions(tmp_path: Path) -> None:
    account = bring("ibnetdiscover-hdr-superbench.txt", machine="dgx-h100")
    path = written(tmp_path, text_made(account), "machine.yaml")
    network = load_machine(str(path)).network
    assert network is not None
    # ten cables of nodes over five, five over two: 2 x 2.5
    assert (network.oversubscription, network.nodes_per_leaf) == (5.0, 2)  # type: ignore[attr-defined]
    assert network.link.bandwidth == 25e9  # type: ignore[attr-defined]


def test_a_cluster_keeps_the_node_of_its_machine() -> None:
    account = bring("slurm-topology-tree.conf", machine="dgx-h100")
    assert account.document is not None
    like = load_machine("dgx-h100")
    assert account.document["gpus_per_node"] == like.gpus_per_node
    assert account.document["network"]["nodes_per_leaf"] == 8
    assert "oversubscription: 1 (the file doesn't count cables" in said(account, "assumed")


def test_a_node_has_as_many_nics_as_it_has_cables() -> None:
    account = bring("ibnetdiscover-hdr-superbench.txt", machine="dgx-h100")
    assert account.document is not None
    assert account.document["nics_per_node"] == 1  # one HCA in every host of the file
    assert "nics_per_node: 1 (1 cable a node; dgx-h100 has 8)" in said(account, "taken")


@pytest.mark.parametrize(
    ("name", "wanted", "words"),
    [
        ("ibnetdiscover-p-unquoted-name.out", {}, "1 port and no cable"),
        ("ibnetdiscover-truncated-gb200.out", {}, "1 device and no port with a cable.*cut short"),
        ("slurm-topology-block.conf", {"machine": "dgx-h100"}, "NVLink domains.*gb200-nvl72"),
        ("ibnetdiscover-p-edr.out", {"machine": "dgx-h100"}, "2 groups of switches that nothing"),
        ("slurm-topology-mixed.yaml", {"part": "topo9"}, "no topology 'topo9'; there are topo1"),
    ],
)
def test_what_makes_no_cluster_is_refused(name: str, wanted: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        bring(name, **wanted)


def test_of_several_topologies_the_default_is_taken_unless_another_is_asked_for() -> None:
    flat = bring("slurm-topology-mixed.yaml")
    assert "topology topo5: the cluster's default" in said(flat, "taken")
    assert said(flat, "ignored").count("--part") == 4
    two_trees = bring("slurm-topology-mixed.yaml", part="topo2")
    assert two_trees.findings == (
        "the nodes are in 2 groups of switches that nothing in the file joins",
    )


@pytest.mark.parametrize(
    ("text", "count"), [("tux[0-7]", 8), ("a,b[1-2,05]c[1-2]", 7), ("n[008-011]", 4)]
)
def test_lists_of_names_are_those_of_slurm(text: str, count: int) -> None:
    assert len(hostlist.names(text)) == count


@pytest.mark.parametrize("text", ["n[1-999999999]", "n[1-2000]m[1-2000]", "n[2-1]", "n[1", "a,,b"])
def test_lists_that_are_none_or_never_end_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        hostlist.names(text)


def test_a_switch_above_itself_is_refused(tmp_path: Path) -> None:
    text = "SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n1\n"
    with pytest.raises(Refused, match=r"switch [ab] is above itself"):
        brought.bring([written(tmp_path, text, "topology.conf")], Wishes())


# --- how training is started -----------------------------------------------------------------


def test_deepspeed_s_three_numbers_give_the_ranks() -> None:
    found = scenario("deepspeed-zero3.json")
    # 128 samples a step, 4 x 2 on each
    assert found["cluster"] == {"machine": "dgx-a100", "ranks": 16}
    assert found["strategy"]["reduce_bucket_size"] == 2e8
    assert "stage3_prefetch_bucket_size" not in found["strategy"]  # auto
    assert found["batch"] == {"accumulation": 2, "per_device": 4}


def test_every_line_of_a_configuration_is_accounted_for() -> None:
    account = bring("deepspeed-zero3.json", model="resnet50", machine="dgx-a100")
    lines = {entry.line: entry.how for entry in account.entries if entry.line}
    assert lines[6] == "taken"  # stage
    assert lines[10] == "ignored"  # auto
    assert lines[12] == "ignored"  # sub_group_size
    assert lines[16] == "ignored"  # gradient_clipping
    assert "# taken:" in text_made(account)


def test_what_is_not_modelled_is_a_finding_and_not_silent() -> None:
    offload = bring("deepspeed-offload.json").findings
    assert [found.partition(":")[0] for found in offload] == ["offload_optimizer", "offload_param"]
    assert "OneBitLamb" in "\n".join(bring("deepspeed-lamb.json").findings)


def test_a_whole_batch_and_a_micro_batch_leave_accumulation_to_the_ranks() -> None:
    assert scenario("deepspeed-lamb.json")["batch"] == {"per_device": 64, "global": 4096}


@pytest.mark.parametrize("stage", [0, 1])
def test_zero_one_adam_of_deepspeed_is_dpsim_s_with_its_knobs(stage: int, tmp_path: Path) -> None:
    """With ddp a key of the scenario, beside ZeRO a finding that names it."""
    knobs = {"var_freeze_step": 12500, "local_step_clipper": 8}
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": stage},
              "optimizer": {"type": "ZeroOneAdam", "params": {"lr": 1e-3, **knobs}}}  # fmt: skip
    path = written(tmp_path, json.dumps(config, indent=1), "ds.json")
    found = brought.bring([path], Wishes(machine="dgx-a100", model="resnet50"), load)
    assert found.document is not None
    if stage == 0:
        assert found.document["compression"] == {"kind": "zero_one_adam", **knobs}
    else:
        assert "compression" not in found.document
        assert any("{kind: zero_one_adam, var_freeze_step: 12500, local_step_clipper: 8}" in text
                   for text in found.findings)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "cluster", "strategy"),
    [
        (
            "accelerate-fsdp.yaml",
            {"nodes": 2, "gpus_per_node": 8},
            {
                "distributed_type": "fsdp",
                "fsdp_version": 2,
                "options": {"reshard_after_forward": True},
            },
        ),
        ("accelerate-ddp.yaml", {"ranks": 4}, {"distributed_type": "multi_gpu"}),
        (
            "accelerate-deepspeed.yaml",
            {"ranks": 8},
            {"distributed_type": "deepspeed", "zero_stage": 2},
        ),
    ],
)
def test_accelerate_s_file_is_a_scenario(
    name: str, cluster: dict[str, Any], strategy: dict[str, Any]
) -> None:
    found = scenario(name)
    assert found["cluster"] == {"machine": "dgx-a100", **cluster}
    assert found["strategy"] == {"kind": "accelerate", **strategy}


def test_a_batch_script_is_read_and_not_run() -> None:
    found = scenario("torchrun.sbatch", model="")
    assert found["model"] == {"huggingface": "llama-3-8b", "sequence_length": 4096}
    assert found["cluster"] == {"machine": "dgx-a100", "nodes": 4, "gpus_per_node": 8}
    assert found["strategy"] == {"kind": "fsdp1", "sharding_strategy": "FULL_SHARD"}
    assert found["batch"] == {"per_device": 2, "accumulation": 4}
    assert (found["precision"]["compute"], found["recompute"]) == ("bf16", "full")


def test_megatron_s_arguments_are_a_model_a_mesh_and_a_batch() -> None:
    found = scenario("megatron.sh", model="")
    assert found["model"] == {
        "name": "transformer", "family": "llama", "hidden": 4096, "blocks": 32, "heads": 32,
        "feed_forward": 11008, "sequence_length": 4096, "vocabulary": 32000,
    }  # fmt: skip
    assert found["parallel"] == {"tensor": 4, "pipeline": 2, "sequence_parallel": True}
    # what stands inside `if` is not followed
    assert found["batch"] == {"per_device": 1, "global": 256}
    # over 32 ranks / (4 x 2) replicas
    assert Batch(per_device=1, global_=256).on(32 // 8).accumulation == 64
    assert found["strategy"]["grad_reduce_in_fp32"] is True


PRETRAIN = """torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 16 \\
  --hidden-size 4096 --num-attention-heads 32 --swiglu --seq-length 4096 --micro-batch-size 1 \\
  --global-batch-size 64 --bf16 --untie-embeddings-and-output-weights \\
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B
"""


def test_a_tokenizers_name_tells_how_many_words_there_are(tmp_path: Path) -> None:
    path = written(tmp_path, PRETRAIN, "pretrain.sh")
    found = brought.bring([path], Wishes(machine="dgx-h100"), load)
    assert found.document is not None
    assert found.document["model"]["vocabulary"] == 128256
    other = written(tmp_path, PRETRAIN.replace("Meta-Llama-3-8B", "Nobodys-7B"), "other.sh")
    assumed = brought.bring([other], Wishes(machine="dgx-h100"), load)
    assert any("model.vocabulary: 32000" in e.text for e in assumed.entries if e.how == "assumed")


@pytest.mark.parametrize(
    ("flag", "made_up"),
    [
        ("--mock-data", True),
        ("--dummy", True),
        ("--dummy data/imagenet", True),
        ("--mock-data false", False),
        ("--dummy $DUMMY", False),
        ("", False),
    ],
)
def test_samples_that_are_made_up_are_said_so(tmp_path: Path, flag: str, made_up: bool) -> None:
    """NVIDIA/Megatron-LM megatron/training/arguments.py has `--mock-data` for them."""
    path = written(tmp_path, PRETRAIN.rstrip() + f" {flag}\n", "pretrain.sh")
    found = brought.bring([path], Wishes(machine="dgx-h100"), load)
    assert found.document is not None
    assert found.document.get("input") == ({"synthetic": True} if made_up else None)


def test_dimensions_beside_a_model_that_is_asked_for_are_told_and_compared(tmp_path: Path) -> None:
    path = written(tmp_path, PRETRAIN, "pretrain.sh")
    found = brought.bring([path], Wishes(machine="dgx-h100", model="llama-3-8b"), load)
    assert "--num-layers 16: llama-3-8b has 32" in found.findings
    told = {entry.text: entry.how for entry in found.entries}
    assert told["--hidden-size 4096: the model is llama-3-8b, as asked for"] == "ignored"
    assert told["model.sequence_length: 4096 (--seq-length 4096)"] == "taken"


def test_a_value_that_the_file_does_not_hold_is_a_finding() -> None:
    account = bring("megatron-arguments.txt", machine="dgx-a100")
    assert any("--pipeline-model-parallel-size $PIPELINE" in one for one in account.findings)
    assert account.document is not None
    assert account.document["model"]["family"] == "gpt2"


def test_the_result_is_a_scenario_that_runs_once_model_and_machine_are_named(
    tmp_path: Path,
) -> None:
    out = tmp_path / "mine.yaml"
    account = bring("accelerate-fsdp.yaml", model="resnet50", machine="dgx-a100", beside=tmp_path)
    brought.save(account, out)
    assert read_scenario(out).points
    assert read_scenario(out).scenario.recompute == "full_early_stop"  # NO_REENTRANT
    bare = bring("accelerate-fsdp.yaml")
    assert not brought.complete(bare)
    path = written(tmp_path, text_made(bare), "bare.yaml")
    with pytest.raises(Refused, match="NAME-YOUR-MODEL"):
        read_scenario(path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", '{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 8, '
         '"gradient_accumulation_steps": 1}', "no multiple"),
        ("b.json", '{"zero_optimization": {"stage": "three"}}', "is no whole number"),
        ("c.json", '{"zero_optimization": 3}', "a mapping is needed"),
        ("d.json", '{"train_batch_size": 8, "train_batch_size": 9}', "twice"),
        ("e.yaml", "distributed_type: MULTI_CPU\n", "MULTI_CPU is not modelled"),
        ("f.yaml", "distributed_type: MULTI_GPU\nnum_machines: 3\nnum_processes: 8\n", "multiple"),
        ("h.sh", "#!/bin/sh\nV0=xxxxxxxxxx\n" + "".join(f"V{i}=" + f"$V{i - 1}" * 9 + "\n"
         for i in range(1, 40)) + "torchrun a.py $V39\n", "grows to more than"),
        ("i.sh", "#!/bin/sh\nrm -rf /\n", "starts no training"),
        ("k.yaml", "switches:\n  a: b\nblocks:\n- switch: c\n  nodes: [n]\n", "list of switches"),
        ("l.yaml", "switches:\n  a: {}\nblocks:\n- c\n", "each has a switch and a list of nodes"),
        ("m.json", '[{"links": [3], "compounded_links": 1}]', "each is a mapping"),
        ("n.yaml", "model: {name: gpt2}\ncluster: {machine: dgx-1v}\n", "is a scenario: dpsim run"),
        ("j.txt", "nothing of interest\n", "is no file that dpsim knows; it knows: .*Slurm"),
    ],
)  # fmt: skip
def test_one_clear_refusal(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        brought.bring([written(tmp_path, text, name)], Wishes())
    assert str(caught.value).startswith(name)


# --- what libraries log, and what trackers export --------------------------------------------


def test_a_log_of_nccl_is_told_beside_what_is_expected_on_the_machine() -> None:
    account = bring("nccl-sockets.log", machine="dgx-a100")
    text = said(account, "taken")
    assert "NCCL 2.21.5: 4 ranks on 2 nodes" in text
    assert "ring 1: 0 1 2 3" in text
    assert "tree 1: 4 ranks, root 2" in text
    assert "between nodes: 4 connections via NET/Socket" in text
    findings = "\n".join(account.findings)
    assert "4 of 4 connections inside nodes go through shared memory (SHM)" in findings
    assert "4 connections between nodes over TCP sockets, where infiniband is there" in findings
    assert "NCCL_IB_DISABLE=1" in findings


def test_a_log_of_one_host_of_two_names_all_ranks_and_nodes(tmp_path: Path) -> None:
    """NCCL from 2.19 on and RCCL count them where a rank begins."""
    text = (
        "a:1:1 [0] NCCL INFO RCCL version : 2.21.5-HEAD:abc hip6.3\n"
        "a:1:2 [0] NCCL INFO comm 0x5 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0\n"
        "a:1:2 [0] NCCL INFO Channel 00/01 : 0 1 2 3\n"
        "a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0x5 nRanks 04\n"
    )
    account = brought.bring([written(tmp_path, text, "a.log")], Wishes())
    assert "NCCL 2.21.5: 4 ranks on 2 nodes" in said(account, "taken")


def test_gpus_in_words_are_all_of_a_node_s_or_a_finding(tmp_path: Path) -> None:
    script = "#SBATCH --gres=gpu:4\ntorchrun --nnodes 2 --nproc-per-node=gpu train.py\n"
    account = brought.bring([written(tmp_path, script, "a.sh")], Wishes())
    assert account.document is not None
    assert account.document["cluster"]["gpus_per_node"] == 4
    assert account.findings == ()
    assert "as many as a node has GPUs" in said(account, "ignored")
    script = 'deepspeed --include "a:0,1@b:0,1" train.py\n'
    account = brought.bring([written(tmp_path, script, "b.sh")], Wishes())
    assert any("--include a:0,1@b:0,1: set cluster.nodes" in one for one in account.findings)


def test_a_model_is_imported_with_sequences_that_it_has_positions_for(tmp_path: Path) -> None:
    bert = Path(__file__).parent.parent / "dpsim/models/configs/bert-large.json"
    account = brought.bring([written(tmp_path, bert.read_text("utf-8"), "bert.json")], Wishes())
    assert account.document == {"huggingface": "bert.json", "sequence_length": 512}


def test_a_log_as_expected_has_no_finding() -> None:
    log = DATA.parent / "calibration" / "old-layout-mpi-tagged-efa-16gpu-interleaved-debug.txt"
    account = brought.bring([log], Wishes(machine="p4d.24xlarge"))
    assert account.findings == ()
    assert "8 channels" in said(account, "taken")  # NCCL doubles the four of its search
    assert "dpsim expects on p4d.24xlarge: 8 channels" in said(account, "assumed")
    assert "dpsim calibrate FILE" in account.advice


def test_json_of_nccl_tests_is_a_curve_with_the_spread_of_its_iterations() -> None:
    """In place, as in its text, for frameworks reduce so."""
    (curve,) = read_any(DATA / "nccl-tests.json").curves
    assert (curve.operation, curve.ranks, curve.nodes) == ("all_reduce", 4, 2)
    assert curve.points == (
        (1048576.0, pytest.approx(60.5e-6), pytest.approx(1.5e-6)),
        (4194304.0, pytest.approx(141e-6), 0.0),
    )


def test_json_of_nccl_tests_lists_a_gpu_of_each_process_whatever_it_has(tmp_path: Path) -> None:
    """`-t 2 -g 4`: eight GPUs each, whose first alone is listed (nccl-tests, src/util.cu); the
    quicker row is as short as one thread takes to issue to four GPUs."""
    document = json.loads((DATA / "nccl-tests.json").read_text())
    document["config"] |= {"nthreads": 2, "ngpus": 4, "devices": document["config"]["devices"][::2]}
    document["results"][0]["in_place"]["time"] = 18.0
    document["results"] = [{**document["results"][0], "size": 2**k} for k in range(4)] + [
        document["results"][1]
    ]
    path = tmp_path / "out.json"
    path.write_text(json.dumps(document))
    found = read_any(path)
    (curve,) = found.curves
    assert (curve.ranks, curve.nodes) == (16, 2)
    assert [size for size, _, _ in curve.points] == [4194304.0]
    assert "one thread issues to 4 GPUs (nGpus 4): 4 rows take 18 us" in str(found.warnings)
    document["config"]["ngpus"] = "4"
    path.write_text(json.dumps(document))
    with pytest.raises(Refused, match="ngpus: '4' is no whole number in 1 … 1,024"):
        read_any(path)


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("wandb-history.csv", [0.412, 0.408, 0.4095]),
        ("mlflow-metrics.csv", [0.4, 0.4, 0.4]),  # the pause of 92 s is none of its steps
        ("tensorboard.csv", [0.5, 0.5]),
        ("tensorboard.json", [0.5, 0.625]),
    ],
)
def test_exports_of_experiments_are_step_times(name: str, samples: list[float]) -> None:
    (steps,) = read_any(DATA / name).steps
    assert list(steps.samples) == pytest.approx(samples)
    assert "step times" in said(bring(name), "taken")


def test_an_index_of_safetensors_says_how_many_parameters_there_are(tmp_path: Path) -> None:
    account = bring("model.safetensors.index.json")
    assert account.document is not None
    assert (account.document["parameters"], account.document["blocks"]) == (1200, 2)
    text = (DATA / "model.safetensors.index.json").read_text("utf-8")
    bare = written(tmp_path, text.replace('"total_parameters": 1200, ', ""), "index.json")
    unsure = brought.bring([bare], Wishes())
    assert unsure.document is None  # 1,200 in 16 bit, 600 in 32
    written(tmp_path, '{"torch_dtype": "float32"}', "config.json")
    sure = brought.bring([bare], Wishes())
    assert sure.document is not None
    assert sure.document["parameters"] == 600


def test_what_other_commands_take_is_said(tmp_path: Path) -> None:
    prices = DATA.parent / "prices" / "skypilot-lambda.csv"
    assert "price: {file" in brought.bring([prices], Wishes()).advice
    topology = DATA.parent / "topology" / "azure-ndv5-topo.xml"
    assert "8 GPUs, 8 NICs" in said(brought.bring([topology], Wishes()), "taken")


# --- execution traces ------------------------------------------------------------------------


def test_chakra_s_bytes_are_those_of_its_schema() -> None:
    """Written out by hand after protobuf.dev's "Encoding" and et_def.proto."""
    node = ChakraNode(1, "AR", chakra.COLLECTIVE, (0,), 300, 8, chakra.COLLECTIVES["all_reduce"])
    metadata = bytes([7, 0x0A, 5]) + b"0.0.4"
    attributes = (
        bytes([0x52, 14, 0x0A, 9]) + b"is_cpu_op" + bytes([0xD8, 1, 0])
        + bytes([0x52, 13, 0x0A, 9]) + b"comm_size" + bytes([0x48, 8])
        + bytes([0x52, 13, 0x0A, 9]) + b"comm_type" + bytes([0x48, 0])
    )  # fmt: skip
    content = bytes([0x08, 1, 0x12, 2]) + b"AR" + bytes([0x18, 7, 0x2A, 1, 0, 0x38, 0xAC, 2])
    content += attributes
    assert chakra.write([node]) == metadata + bytes([len(content)]) + content
    assert chakra.read(chakra.write([node])) == ("0.0.4", [node])


def test_a_simulated_step_is_a_chakra_trace_that_keeps_its_order(tmp_path: Path) -> None:
    shown = last_step(predict("worked/ddp_steady"))
    files = write_trace(shown, tmp_path / "step.et")
    assert [file.name for file in files] == ["step.0.et", "step.1.et"]
    _, nodes = chakra.read(files[0].read_bytes())
    spans = shown.by_rank()[0].spans
    assert sum(node.size for node in nodes) == sum(round(span.bytes) for span in spans)
    ends: dict[int, int] = {}
    for node in nodes:  # played alone, each after what it waits for, it takes as long
        ends[node.id] = max((ends[dep] for dep in node.deps), default=0) + node.micros
    assert max(ends.values()) == pytest.approx(shown.end * 1e6, abs=len(nodes))
    account = brought.bring([files[0]], Wishes())
    assert "3 collective" in said(account, "taken")


def test_pytorch_s_execution_trace_tells_its_collectives(tmp_path: Path) -> None:
    attributes = {"collective_name": "allreduce", "dtype": "Float", "in_msg_nelems": 2049000}
    named = [{"name": name, "value": value} for name, value in attributes.items()]
    node = {"id": 1, "name": "record_param_comms", "attrs": named}
    text = json.dumps({"schema": "1.1.0-chakra.0.0.4", "nodes": [node]})
    account = brought.bring([written(tmp_path, text, "et.json")], Wishes())
    assert "allreduce: 1 time 8.196 MB" in said(account, "taken")


@pytest.mark.parametrize("rest", [b"", b"\x7f\x08", b"\x02\x0b\x01"])
def test_a_damaged_chakra_trace_is_refused(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "x.et"
    path.write_bytes(b"\x07\n\x050.0.4" + rest)
    with pytest.raises(Refused, match=r"cut short|wire type"):
        brought.bring([path], Wishes())


# --- the command -----------------------------------------------------------------------------


def test_the_command_says_what_a_file_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.yaml"
    args = ["import", str(DATA / "accelerate-ddp.yaml"), "-o", str(out), "--model", "resnet50"]
    code = app()([*args, "--machine", "dgx-a100", "--json"], standalone_mode=False)
    document, _ = loads(capsys.readouterr().out, "out")
    assert (code, document["kind"]) == (0, "configuration of accelerate")
    assert document["complete"] is True
    assert loads(out.read_text("utf-8"), "out")[0] == document["scenario"]


def test_every_kind_has_a_title_of_its_own() -> None:
    titles = [kind.title for kind in kinds()]
    assert len(set(titles)) == len(titles) > 5


def test_a_log_of_more_ranks_than_there_can_be_is_refused() -> None:
    text = "host:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 20000000 cudaDev 0 busId 1 - Init START"
    with pytest.raises(Refused, match="20,000,000 ranks; at most 1,048,576"):
        nccl_lines.read(text)
