"""Live torch modules and stand-ins: what is counted on the meta device, and what is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dpsim
from dpsim.core.record import Refused
from dpsim.models import Model
from dpsim.models.architectures.uniform import GROWTH, LEVEL
from dpsim.models.named import load_named
from dpsim.models.section import load, make

torch = pytest.importorskip("torch")
nn = torch.nn

UNIFORM = {"name": "uniform", "parameters": 12e9, "blocks": 40, "flop_per_sample": "80 TFLOP"}
#: eight A100; the model is missing
RUN = {"cluster": {"machine": "dgx-a100", "ranks": 8}, "strategy": {"kind": "ddp", "torch": "2.13"}}


def tower() -> Any:
    """Two blocks, of which the second is registered first, and a tied head."""

    class Tower(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 16)
            self.late, self.early = nn.Linear(16, 16), nn.Linear(16, 16)
            self.head = nn.Linear(16, 50, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.late(self.early(self.table(x)).relu()))

    return Tower()


def tokens() -> Any:
    return torch.zeros(3, 7, dtype=torch.long)


def traced(module: Any, *inputs: Any, **more: Any) -> Model:
    return dpsim.from_torch(module, *inputs, **more).made


def uniform(**changed: Any) -> Model:
    return load(make({**UNIFORM, **changed}, file=True), None)  # type: ignore[arg-type]


def test_parameters_stand_as_registered_and_layers_run_as_called() -> None:
    module = tower()
    model = traced(module, tokens())
    found = [tuple(t.shape) for layer in model.layers for t in layer.tensors]
    assert found == [tuple(p.shape) for p in module.parameters()]
    assert model.parameters == sum(p.numel() for p in module.parameters())
    order = [model.layers[i].name for i in model.forward_order]
    assert order == ["table", "early", "late", "head"]
    assert (model.sample, model.tokens) == ("sequence", 7)
    assert model.arrival[-1] == 0  # the tied table collects gradients until the very end


def test_flop_are_those_of_torch_s_own_counter_per_sample() -> None:
    flop_counter = pytest.importorskip("torch.utils.flop_counter")
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    net, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(4, 6, 16)
    with flop_counter.FlopCounterMode(display=False) as counter:
        net(x).sum().backward()
    assert 4 * traced(net, x).flop_per_sample() == counter.get_total_flops() > 0


def test_a_traced_resnet_is_the_one_that_has_a_name() -> None:
    from test_models import torch_resnet50

    with torch.device("meta"):
        net = torch_resnet50(nn)
        found = traced(net, torch.empty(2, 3, 224, 224))
    known = load_named("resnet50", 1)
    assert found.parameters == known.parameters
    assert found.flop_per_sample() == known.flop_per_sample()
    assert (found.sample, found.buffers) == ("image", known.buffers)
    kept = [sum(layer.activations for layer in model.layers) for model in (found, known)]
    assert kept[0] == pytest.approx(kept[1], rel=0.01)


def test_a_module_is_left_as_it_was() -> None:
    module = tower().eval()
    before = {name: p.clone() for name, p in module.named_parameters()}
    traced(module, tokens())
    assert not module.training
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())
    assert all(p.grad is None and p.device.type == "cpu" for p in module.parameters())
    assert not module.early._forward_hooks


def test_a_trace_stands_as_the_model_of_a_scenario() -> None:
    given = dpsim.from_torch(tower(), tokens(), name="tower")
    own = dpsim.predict({"model": given, **RUN})
    assert own.document["scenario"]["model"] == {"traced": "tower", "parameters": 1344}
    other = dpsim.predict({"model": {"name": "alexnet"}, **RUN}, model=given)
    assert other.step_time_s == own.step_time_s
    with pytest.raises(Refused, match=r"given in Python \(dpsim.from_torch\)"):
        dpsim.predict(json.loads(json.dumps(own.document["scenario"])))


class Reader(nn.Module):  # type: ignore[misc, name-defined]
    """Looks at its data."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.inner(x) if x.sum() > 0 else x


def part_frozen() -> Any:
    """Four matrices, of which the third is trained, and an adapter of rank 2 beside the last."""

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(64, 64, bias=False) for _ in range(4))
            self.low, self.high = nn.Linear(64, 2, bias=False), nn.Linear(2, 64, bias=False)
            for own in (self.a, self.b, self.d):
                own.requires_grad_(False)

        def forward(self, x: Any) -> Any:
            y = self.c(self.b(self.a(x)))
            return self.d(y) + self.high(self.low(y))

    return Net()


def test_what_is_frozen_has_no_gradient_and_what_is_before_it_no_backward() -> None:
    """All parameters are there, three are trained; two layers have no backward, the frozen one
    behind makes the gradient of its input alone, and buckets hold what is trained."""
    module = part_frozen()
    model = traced(module, torch.randn(8, 64))
    assert model.parameters == sum(p.numel() for p in module.parameters())
    assert model.trained == 64 * 64 + 2 * 2 * 64
    assert [layer.name for layer in model.layers if layer.detached] == ["a", "b"]
    back = {layer.name: layer.backward_flop for layer in model.layers}
    assert (back["a"], back["b"]) == (0.0, 0.0)
    matrix, low = 2.0 * 64 * 64, 2.0 * 64 * 2
    assert sum(back.values()) == 2 * matrix + 4 * low  # of c its own, of d its input's
    done = dpsim.predict({**RUN, "model": {"name": "resnet50"}}, model=dpsim.from_torch(
        module, torch.randn(8, 64)))  # fmt: skip
    sent = done.document["points"][0]["bytes_sent_per_rank"]
    assert sent == pytest.approx(2 * 7 / 8 * 4 * model.trained, rel=0.01)


@pytest.mark.parametrize(
    ("module", "inputs", "says"),
    [
        (3, (), "a int is no torch.nn.Module"),
        (nn.Linear(4, 4), (), "gets no tensor"),
        (nn.Linear(4, 4), (torch.randn(2, 5),), "does not train on the meta device.*dpsim measure"),
        (Reader(), (torch.randn(2, 4),), "does not train on the meta device"),
        (nn.Linear(4, 4).requires_grad_(False), (torch.randn(2, 4),), "every parameter is frozen"),
        (nn.ReLU(), (torch.randn(2, 4),), "nothing that the module returns depends"),
    ],
)
def test_what_cannot_be_traced_is_refused(module: Any, inputs: Any, says: str) -> None:
    with pytest.raises(Refused, match=says):
        dpsim.from_torch(module, *inputs)


# Stand-ins


def test_a_stand_in_has_the_parameters_and_flop_that_are_stated() -> None:
    model = uniform(parameters=12_000_000_007.0)
    assert model.parameters == 12_000_000_007
    assert model.flop_per_sample() == pytest.approx(80e12)
    assert len({layer.unit for layer in model.layers}) == 40
    sizes = [layer.parameters for layer in model.layers]
    assert max(sizes) - min(sizes) == 12_000_000_007 % 40


def test_a_stand_in_of_a_transformer_s_size_works_like_one() -> None:
    blocks = [layer for layer in load_named("gpt2-xl", 1024).layers if layer.unit]
    like = uniform(
        parameters=float(sum(layer.parameters for layer in blocks)), blocks=48,
        flop_per_sample=f"{sum(x.forward_flop + x.backward_flop for x in blocks)!r} FLOP",
    )  # fmt: skip
    for key in ("activations", "forward_bytes", "kernels"):
        theirs = sum(getattr(layer, key) for layer in blocks)
        assert sum(getattr(layer, key) for layer in like.layers) == pytest.approx(theirs, rel=0.3)


def test_an_answer_says_that_it_rests_on_a_stand_in() -> None:
    plain = dpsim.predict({"model": UNIFORM, **RUN})
    point = plain.document["points"][0]
    assert tuple(plain.outcomes[0].point.interval.causes["stand-in"]) == LEVEL  # type: ignore[union-attr]
    assert any("a stand-in of 40 equal blocks" in text for text in plain.warnings)
    assert point["step_time_high_s"] > LEVEL[1] * point["step_time_s"]


def test_where_its_own_step_was_measured_a_stand_in_is_as_good_as_any() -> None:
    measured = {"step_time": "12 s", "ranks": 8}
    document = {"model": UNIFORM, **RUN, "calibrate": measured, "sweep": {"cluster.ranks": [8, 16]}}
    here, there = (one.point.interval.causes for one in dpsim.predict(document).outcomes)  # type: ignore[union-attr]
    assert "stand-in" not in here
    assert tuple(there["stand-in"]) == GROWTH


def test_another_batch_of_a_stand_in_was_not_measured_on_as_many_ranks() -> None:
    measured = {"step_time": "12 s", "ranks": 8}
    sweep = {"batch.per_device": [1, 2]}
    document = {"model": UNIFORM, **RUN, "calibrate": measured, "sweep": sweep}
    here, there = (one.point.interval.causes for one in dpsim.predict(document).outcomes)  # type: ignore[union-attr]
    assert "stand-in" not in here
    assert tuple(there["stand-in"]) == GROWTH


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"parameters": 1.5}, "1.5 is not a whole number"),
        ({"parameters": 100.0}, "100 are too few for 40 blocks"),
        ({"flop_per_sample": 80}, "has no unit"),
        ({"flop_per_sample": "0 FLOP"}, "no work"),
        ({"flop_per_sample": None}, "flop_per_sample"),
    ],
)
def test_a_stand_in_without_a_size_is_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says):
        uniform(**changed)


def test_lengths_that_only_the_data_say_widen_every_interval_by_name() -> None:
    """Down to half without a measured step, and both ways from a step at another count."""
    own = {**RUN, "model": {"huggingface": "bert-base-uncased", "sequence_length": 512}}
    other = {**own, "model": {**own["model"], "lengths": "varying"}}  # type: ignore[dict-item]
    plain, varying = dpsim.predict(own).points[0], dpsim.predict(other)
    assert varying.points[0].interval.causes["lengths of texts"] == (0.5, 1.0)
    assert varying.points[0].interval.low < plain.interval.low
    assert any("only the data say" in text for text in varying.warnings)
    with pytest.raises(Refused, match="is for texts; a sample is an image"):
        load(make({"huggingface": "vit-base-patch16-224", "lengths": "varying"}, file=True), Path())
