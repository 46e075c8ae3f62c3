"""Training a part of a model: adapters and frozen parameters (docs/assumptions.md, A80)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toys import job_of

from dpsim.compile.job import Job, gradients_of, parameters_of, state_bytes
from dpsim.compile.strategies import Strategy
from dpsim.core import plugins
from dpsim.core.dtypes import stored_bytes
from dpsim.core.record import Refused
from dpsim.describe.scenario import read
from dpsim.machines.machine import load_device
from dpsim.models import Model
from dpsim.models.adapters import Adapters
from dpsim.models.architectures.resnet50 import ResNet50
from dpsim.models.compute import layer_times
from dpsim.models.frozen import frozen
from dpsim.models.memory import kept_bytes
from dpsim.models.named import load_named
from dpsim.models.section import dump_model, make
from dpsim.models.section import load as load_model
from dpsim.models.tuning import Tunable
from dpsim.predict.prediction import predict

QV = ("q_proj", "v_proj")


def llama(adapters: Adapters | None = None, **rest: Any) -> Model:
    return Tunable(adapters=adapters, **rest).tuned(load_named("llama-3.1-8b", 1024))


def toy(*layers: str, **rest: Any) -> Model:
    """Layers of 1,000 parameters, 1 ms forward and 4 ms backward, of which 3 ms are for weights; a
    dash before a name: frozen."""
    specs = [
        {"name": name.lstrip("-"), "parameters": 1000, "forward": "1 ms",
         "backward_input": "1 ms", "backward_weight": "3 ms", "trainable": name[0] != "-"}
        for name in layers
    ]  # fmt: skip
    return load_model(make({"layers": specs, **rest}, file=True), Path())


def backwards(model: Model) -> list[float]:
    return [
        round(time.backward * 1e3, 9) for time in layer_times(model, None, "fp32", 1, 1, "none")
    ]


# -- what is trained ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "adapters", "trained"),
    [
        # what peft's print_trainable_parameters says of it, in peft's own documentation
        ("llama-3.1-8b", Adapters(rank=16, targets=QV), 6_815_744),
        # 32 blocks of rank (in + out) summed over q, k, v, o, gate, up, down
        ("llama-3.1-8b", Adapters(rank=8, targets="all-linear"),
         32 * 8 * (2 * 8192 + 2 * 5120 + 3 * 18432)),
        ("llama-3.1-8b", Adapters(rank=8, targets=QV, kind="dora"), 3_407_872 + 32 * 5120),
        ("gpt2-large", Adapters(rank=4, targets=("c_attn",)), 36 * 4 * (1280 + 3 * 1280)),
        ("bert-large", Adapters(rank=8, targets=("query", "value")), 24 * 2 * 8 * 2048),
        ("resnet50", Adapters(rank=2, targets=("fc",)), 2 * (2048 + 1000)),
        ("resnet50", Adapters(rank=2, targets=("layer1.0.conv2",)), 2 * 64 * 9 + 64 * 2),
    ],
)  # fmt: skip
def test_adapters_have_the_parameters_of_their_two_matrices(
    name: str, adapters: Adapters, trained: int
) -> None:
    plain = load_named(name, 128)
    model = Tunable(adapters=adapters).tuned(plain)
    assert model.trained == trained
    assert model.parameters == plain.parameters + trained


def test_patterns_train_whole_parts_of_names_beside_the_adapters() -> None:
    model = llama(Adapters(rank=16, targets=QV), trainable=(".*layernorm", "lm_head"))
    assert model.trained == 6_815_744 + 64 * 4096 + 128_256 * 4096
    assert llama(Adapters(rank=16, targets=QV), trainable=(".*lora.*",)).trained == 6_815_744
    assert toy("p1", "p10", trainable=["p1"]).trained == 1000


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"trainable": ["nothing"]}, r"model\.trainable\[0\]: 'nothing' matches no parameter"),
        ({"trainable": ["("]}, r"model\.trainable\[0\]: '\(' is no regular expression"),
        ({"trainable": []}, r"model\.trainable: an empty list"),
        *(({"trainable": [endless]}, r"model\.trainable\[0\]: .* may never be done")
          for endless in ("(a+)+$", "(?:p|p){1,99}x", "p?" * 40, ".*" * 20 + "x", "(p|p)" * 30)),
        ({"adapters": {"rank": 8, "targets": ["x_proj"]}},
         r"adapters\.targets: no matrix product is called 'x_proj'; there are q_proj, k_proj"),
        ({"adapters": {"rank": 8, "targets": ["embed_tokens"]}}, "no matrix product is called"),
        ({"adapters": {"rank": 8}}, r"adapters\.targets: is missing"),
        ({"adapters": {"rank": 0, "targets": ["q_proj"]}}, r"adapters\.rank: 0 is not in"),
        ({"adapters": {"rank": 8, "targets": ["q_proj"], "base_dtype": "int3"}}, "nf4, int8"),
    ],
)  # fmt: skip
def test_what_names_nothing_is_refused_with_what_there_is(
    section: dict[str, Any], said: str
) -> None:
    model = {"huggingface": "llama-3.1-8b", "sequence_length": 128, **section}
    with pytest.raises(Refused, match=said):
        load_model(load_section(model), Path())


def load_section(model: dict[str, Any]) -> Any:
    """The model section of a scenario, checked as a file's is."""
    try:
        return make(model, file=True)
    except Refused as error:
        raise Refused(error.message, ("model", *error.path)) from None


def test_toys_have_no_matrices_to_adapt_and_something_has_to_be_trained() -> None:
    with pytest.raises(Refused, match="has no matrices of known shape"):
        toy("a", adapters={"rank": 8, "targets": "all-linear"})
    with pytest.raises(Refused, match="every parameter is frozen"):
        toy("-a", "-b")


# -- work -----------------------------------------------------------------------------------------


def test_a_frozen_layer_makes_the_gradient_of_its_input_and_none_below_what_is_trained() -> None:
    assert backwards(toy("a", "b", "c")) == [4, 4, 4]
    assert backwards(toy("a", "-b", "c")) == [4, 1, 4]
    assert backwards(toy("-a", "-b", "c")) == [0, 0, 3]
    assert backwards(toy("-a", "b", "-c")) == [0, 3, 1]


def test_backward_visits_what_a_gradient_reaches() -> None:
    assert list(toy("-a", "-b", "c", "-d").backward_order()) == [3, 2]
    turned = toy("-a", "-b", "c", "-d", forward_order=list("dcab"))
    assert list(turned.backward_order()) == [1, 0, 2]


@pytest.mark.parametrize(
    ("name", "per_token"),
    # model TFLOP/s over tokens/s of one GPU as NeMo's launcher publishes them for LoRA
    # (validation/published/training.csv, T2272, T2269): no gradients of weights, 4 N a token
    [("llama-2-7b", 633e12 / 23_711), ("llama-2-70b", 681e12 / 2_470)],
)
def test_the_flop_of_lora_are_those_that_nemo_counts(name: str, per_token: float) -> None:
    plain = load_named(name, 1)
    model = Tunable(adapters=Adapters(rank=16, targets=("q_proj",))).tuned(plain)
    assert model.flop_per_sample() == pytest.approx(per_token, rel=0.03)
    assert plain.flop_per_sample() == pytest.approx(1.5 * per_token, rel=0.03)


def test_a_classifier_on_a_frozen_network_costs_its_forward() -> None:
    plain = ResNet50().model()
    model = Tunable(trainable=("fc",)).tuned(plain)
    assert model.flop_per_sample() == pytest.approx(
        sum(layer.forward_flop for layer in plain.layers) + 2 * 2048 * 1000
    )
    device = load_device("a100-sxm-40gb", Path())
    once = layer_times(model, device, "fp16", 64, 0.5, "none")
    assert sum(time.backward for time in once[:-1]) == 0


def test_quantised_matrices_are_unpacked_before_every_product() -> None:
    """Beside what LoRA takes: 4.127 bits read and 16 written an element, in either pass."""
    device = load_device("rtx4090", Path())
    base = Adapters(rank=16, targets=QV, base_dtype="bf16")
    packed = Adapters(rank=16, targets=QV, base_dtype="nf4")
    seconds = [
        sum(t.forward + t.backward for t in layer_times(llama(a), device, "bf16", 1, 0.5, "none"))
        for a in (base, packed)
    ]
    matrices = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    moved = 2 * matrices * (0.5 + 0.127 / 8 + 2)
    assert seconds[1] - seconds[0] == pytest.approx(moved / device.memory_bandwidth, rel=1e-3)


# -- what systems exchange and keep ---------------------------------------------------------------

#: systems, and the settings with which they take a toy
SYSTEMS: dict[str, dict[str, Any]] = {
    "ddp": {}, "fsdp": {}, "fsdp1": {}, "horovod": {}, "pmap": {}, "mirrored": {},
    "multi_worker_mirrored": {}, "data_parallel": {}, "megatron": {},
    "zero": {"stage": 1}, "zero2": {"stage": 2}, "zero3": {"stage": 3}, "paper": {"stage": 3},
    "distributed": {"use_distributed_optimizer": True},
}  # fmt: skip
KINDS = {"zero2": "zero", "zero3": "zero", "paper": "zero", "distributed": "megatron"}
REDUCING = ("all_reduce", "reduce_scatter", "reduce", "all_to_all")


def system(name: str) -> Strategy:
    knobs = {**SYSTEMS[name], **({"as_shipped": False} if name == "paper" else {})}
    made: Strategy = plugins.find("strategies", KINDS.get(name, name))(**knobs)
    return made


def job(sizes: Sequence[int], trained: Sequence[bool]) -> Job:
    """A layer for each of `sizes`."""
    made = job_of(4, sizes=tuple(sizes))
    layers = [
        replace(layer, tensors=(layer.tensors[0]._replace(trained=own),))
        for layer, own in zip(made.model.layers, trained, strict=True)
    ]
    model = frozen(Model(name="toy", layers=tuple(layers)))
    times = layer_times(model, None, "fp32", 1, 1, "none")
    return Job(model, 4, times, 1, 1, made.precision, made.optimizer, control=False)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_reduces_updates_and_keeps_only_what_trains(name: str) -> None:
    """As much as a model that has nothing but the trained layers."""
    sizes = (30_000, 90_000, 25_000, 40_000)
    partly, alone = job(sizes, (False, True, False, True)), job((90_000, 40_000), (True, True))
    knobs = system(name)

    def reduced(one: Job) -> float:
        ops = knobs.program(one, None).ops
        return sum(op.bytes for op in ops if op.operation in REDUCING and "gather" not in op.name)

    assert reduced(partly) == pytest.approx(reduced(alone))
    assert reduced(partly) >= 4 * 130_000
    for part in ("optimizer states", "gradients"):
        assert knobs.memory(partly).get(part, 0) == pytest.approx(knobs.memory(alone).get(part, 0))


def test_gathers_bring_what_is_frozen_too() -> None:
    partly = job((30_000, 90_000), (True, False))
    for name, times in (("fsdp", 2), ("zero3", 2)):
        ops = system(name).program(partly, None).ops
        gathered = sum(op.bytes for op in ops if op.operation == "all_gather")
        assert gathered >= 4 * 120_000 * times / 2
    assert [p.trained for p in parameters_of(partly)] == [True, False]
    assert len(gradients_of(partly)) == 1


def test_fsdp1_flattens_trained_and_frozen_together_only_with_use_orig_params() -> None:
    adapters = "model.adapters={rank: 8, targets: [q_proj]}"
    loaded = read("llama3-8b-h100", [adapters, "strategy={kind: fsdp1}", "cluster.nodes=1"])
    with pytest.raises(Refused, match=r"use_orig_params: true"):
        predict(loaded)


def test_the_states_of_qlora_are_a_quarter_of_the_base_and_those_of_the_adapters() -> None:
    model = llama(Adapters(rank=16, targets=QV, base_dtype="nf4"))
    one = job_of(1)
    states = state_bytes(Job(model, 1, (), 1, 1, one.precision, one.optimizer), 1.0)
    matrices = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    rest = 8_030_261_248 - matrices
    told = 4.127 / 8 * matrices + 2 * rest + 4 * 6_815_744
    assert states["parameters"] == pytest.approx(told, rel=1e-4)
    assert (states["gradients"], states["optimizer states"]) == (4 * 6_815_744, 8 * 6_815_744)
    assert stored_bytes("nf4") * 8 == pytest.approx(4.127, abs=1e-3)


def test_frozen_products_keep_no_inputs() -> None:
    """Of a frozen feed-forward part the norm's output and the product of gate and up are not kept;
    with an adapter on down the latter is."""
    plain, qv, down = (
        llama(None),
        llama(Adapters(rank=8, targets=QV)),
        llama(Adapters(rank=8, targets=("down_proj",))),
    )
    index = [layer.name for layer in plain.layers].index("layers.3.mlp")
    kept = [kept_bytes(model.layers[index], "bf16", "none") for model in (plain, qv, down)]
    assert kept[0] - kept[1] == 2 * 1024 * (4096 + 14336)
    assert kept[2] - kept[1] == 2 * 1024 * (14336 + 8)


def test_a_section_with_adapters_reads_back() -> None:
    section = {"rank": 8, "targets": ["q_proj"], "kind": "dora", "base_dtype": "nf4"}
    model = {"name": "transformer", "family": "llama", "hidden": 64, "blocks": 2, "heads": 4,
             "sequence_length": 16, "trainable": ["lm_head"], "adapters": section}  # fmt: skip
    assert dump_model(make(model, file=True)) == model
