"""BERT's own graph in TensorFlow, run one by one: kernels as TensorFlow makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked import case_of, refusal

from dpsim.accuracy.rules import told
from dpsim.accuracy.words import vocabulary
from dpsim.models import Tensor
from dpsim.models.kernel_counts import Habits
from dpsim.models.streams import Kernels
from dpsim.models.tensorflow_kernels import attention, feed_forward, loss

HIDDEN, INNER, SCORES, WORDS = 64, 256, 192, 1000
BLOCK = Habits(
    HIDDEN, INNER, HIDDEN, HIDDEN, 3, SCORES, 1, gated=False, rotary=False, dropout=True,
    score_dropout=True, head_norms=False, composed=False,
)  # fmt: skip
RECORDED = json.loads((Path(__file__).parent / "data" / "tensorflow_graph.json").read_text())
#: made by TensorFlow's 1.15: a number, its comparison, a cast and two products | two products
DROPOUT = (8.5, 5.0)
BERT: dict[str, Any] = {
    "model": {"huggingface": "bert-base-uncased", "sequence_length": 128, "attention": "math"},
    "cluster": {"machine": "dgx-1v", "ranks": 1},
    "strategy": {"kind": "ddp"},
    "precision": {"parameters": "fp32", "compute": "fp32"},
    "execution": {"compile": False, "code": "tensorflow"},
}


def matrices(*shapes: tuple[int, int]) -> tuple[Tensor, ...]:
    named = [(f"{n}.weight", shape) for n, shape in enumerate(shapes)]
    return tuple(
        tensor for name, shape in named
        for tensor in (Tensor(name, shape), Tensor(name.replace("weight", "bias"), shape[:1]))
    )  # fmt: skip


def moved(part: str) -> tuple[float, float]:
    """What an operation by itself moves for each element, forward and backward."""
    return RECORDED[part]["forward"][1], RECORDED[part]["backward"][1]


def in_fp32(found: Kernels | None) -> Kernels:
    assert found is not None
    assert found.single is not None
    return found.single


def test_a_feed_forward_half_moves_what_tensorflows_graph_does() -> None:
    """Norm, two biases, activation, dropout, addition | and the gradient of two readers."""
    own = in_fp32(feed_forward(BLOCK, matrices((INNER, HIDDEN), (HIDDEN, INNER)), 1))
    (norm, norm_back), (made, made_back) = moved("norm"), moved("activation")
    biases = INNER + HIDDEN
    ahead = norm * HIDDEN + 2 * biases + made * INNER + (DROPOUT[0] + 3) * HIDDEN
    back = (norm_back + 3) * HIDDEN + biases + made_back * INNER + DROPOUT[1] * HIDDEN
    assert own.moved == pytest.approx(ahead, rel=0.01)
    assert own.moved_back == pytest.approx(back, rel=0.01)


def test_an_attention_half_moves_what_tensorflows_graph_does() -> None:
    """A softmax on a GPU reads its input twice more than one operation of the graph does."""
    own = in_fp32(attention(BLOCK, matrices(*[(HIDDEN, HIDDEN)] * 4), 1))
    (norm, norm_back), (scores, scores_back) = moved("norm"), moved("scores")
    layouts, biases, products = 8 * HIDDEN, 4 * HIDDEN, (2, 4)
    ahead = (norm + DROPOUT[0] + 3) * HIDDEN + 2 * biases + layouts
    ahead += (products[0] + scores + 2 + DROPOUT[0]) * SCORES
    back = (norm_back + 5 + DROPOUT[1]) * HIDDEN + biases + layouts
    back += (products[1] + scores_back + DROPOUT[1]) * SCORES
    assert own.moved == pytest.approx(ahead, rel=0.01)
    assert own.moved_back == pytest.approx(back, rel=0.01)


def test_the_loss_moves_what_tensorflows_graph_does() -> None:
    own, (ahead, back) = in_fp32(loss(HIDDEN, WORDS, 1)), moved("loss")
    assert own.moved == pytest.approx((ahead + 2) * WORDS, rel=0.01)
    assert own.moved_back == pytest.approx(back * WORDS, rel=0.01)


def test_mixed_precision_keeps_norms_activations_and_softmax_in_32_bits() -> None:
    """In units of 16 bits nearly twice as much, and casts."""
    for found in (attention(BLOCK, (), 1), feed_forward(BLOCK, (), 1), loss(HIDDEN, WORDS, 1)):
        assert found is not None
        assert found.autocast is not None
        assert 1.5 < found.autocast.moved / in_fp32(found).moved < 2.5


def test_a_step_takes_longer_than_with_torchs_kernels() -> None:
    kinds = [{"compile": False}, BERT["execution"]]
    cases = [case_of({**BERT, "execution": kind}) for kind in kinds]
    streams = [[each.streamed for each in case.model.layers if each.unit] for case in cases]
    sums = [sum(s.forward + s.backward for s in found if s) for found in streams]
    assert sums[1] > 4 * sums[0]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"execution": {"compile": True, "code": "tensorflow"}}, "goes with compile: false"),
        ({"model": {"huggingface": "gpt2", "sequence_length": 128}}, "BERT's code in TensorFlow"),
        ({"model": {**BERT["model"], "attention": "sdpa"}}, "BERT's code in TensorFlow has no"),
    ],
)
def test_what_berts_code_does_not_run_is_refused(changes: dict[str, Any], why: str) -> None:
    assert why in refusal({**BERT, **changes})


@pytest.mark.parametrize(
    ("framework", "repository", "code"),
    [
        ("ngc tensorflow 1.x", "oneflow-inc/dlperf", "tensorflow"),
        ("ngc tensorflow 1.x (xla)", "oneflow-inc/dlperf", None),
        ("tensorflow 1.15 (20.06)", "nvidia/deeplearningexamples", None),
        ("ngc pytorch", "oneflow-inc/dlperf", None),
    ],
)
def test_tables_run_it_where_scripts_leave_xla_off(
    framework: str, repository: str, code: str | None
) -> None:
    row = {"framework": framework, "source_repo": repository, "model": "bert-base"}
    keys, _ = next(told(vocabulary().execution, "", lambda name: row.get(name, "")))
    assert keys.get("code") == code


COMPILED = (
    "XLA", "with XLA", "xla=true", "torch.compile", "torch compile", "torch_compile", "TP, compile",
    "inductor", "+ torch.compile",
)  # fmt: skip
EAGER = (
    "", "no XLA", "XLA off", "xla: off", "xla disabled", "xla=false", "without XLA", "w/o xla",
    "no torch.compile", "torch.compile off", "torch.compile=False", "not compiled", "p3.16xlarge",
)  # fmt: skip


@pytest.mark.parametrize("framework", ["pytorch 2.1", "tensorflow 2.4"])
@pytest.mark.parametrize(
    ("words", "compiled"), [*((w, True) for w in COMPILED), *((w, False) for w in EAGER)]
)
def test_compilers_are_read_and_denied(framework: str, words: str, compiled: bool) -> None:
    """In the strategy's words and in the framework's, of transformers and of image networks."""
    for rules in (vocabulary().execution, vocabulary().image_execution):
        for text, named in ((words, framework), ("", f"{framework} {words}".strip())):
            row = {"framework": named, "source_repo": "a/b", "model": "resnet-50"}
            keys, notes = next(told(rules, text.lower(), lambda name, row=row: row.get(name, "")))
            assert keys == {"compile": compiled}, (text, named)
            assert bool(notes) == (not compiled)


@pytest.mark.parametrize(
    ("framework", "compiled"),
    [("MXNet 1.9", True), ("BytePS + MXNet", True), ("OneFlow", True), ("JAX", True),
     ("PaddlePaddle", False), ("PyTorch", False)],
)  # fmt: skip
def test_what_fuses_batch_normalisations_is_known_by_its_name(
    framework: str, compiled: bool
) -> None:
    row = {"framework": framework.lower()}
    rules = vocabulary().image_execution
    keys, notes = next(told(rules, "", lambda name: row.get(name, "")))
    assert keys == {"compile": compiled}
    assert bool(notes) == (framework != "JAX")
