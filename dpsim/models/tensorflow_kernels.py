"""Kernels of BERT's own code in TensorFlow, run one by one (a graph without XLA).

Letters and units are those of `kernel_counts`: elements per token, forward, and behind the bar
backward; a is a stored score.  Nothing that computes element by element is fused, and masks are
made of random numbers in 32 bits.

* A layer norm is `moments` and `batch_normalization`: mean (h), squared difference (2 h), mean (h),
  the scale of every element (h), its products with input (3 h) and mean (2 h), their sum with the
  shift (2 h, 3 h) | 41 h in all, as recorded: sums for shift, scale and both moments, seven
  products, a sign, and sums of what reaches the input by three ways.  Gradients of all that read
  its output are added, (n + 1) h of n.
* Dropout is a random number (1), its comparison (1.25), a cast (1.25) and two products (2, 3) |
  two products (3, 2).
* The activation is of eight operations, 18 f | ten, 26 f: tanh, with a power of three.
* A bias is an addition of its own, twice the product's output; q, k, v and attention's output are
  put in another layout, 2 q + 4 k, 2 q | the same.
* Scores are scaled and masked (2 a each), their softmax is three kernels (4 a), then dropout |
  dropout, softmax in four (9 a), and the scale (2 a).
* The loss adds a bias (2 V), is a log-softmax (4 V), a table of ones (V), a product (3 V) and a sum
  (V) | what is spread (V), a product (3 V), log-softmax in four (8 V) and the bias's sum (V).

Under automatic mixed precision (`auto_mixed_precision_lists.h`: Mean, Pow, Softmax and Sum keep 32
bits, and so does what follows up to the next product) norms, activations, softmax and the dropout
behind it move twice as many, and are cast between.

Source: google-research/bert modeling.py and NVIDIA/DeepLearningExamples
TensorFlow/LanguageModeling/BERT (layer_norm, dropout, gelu, attention_layer,
get_masked_lm_output); graphs and their gradients as TensorFlow makes them
(`validation/record_tensorflow.py`), dropout as its 1.15 did (nn_ops.py, dropout_v2), and two more
readings of a softmax on a GPU (core/kernels/softmax_op_gpu.cu.cc: maximum, sum, quotient).  Left
out: clipping, and updates of an operation each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpsim.models import Tensor
from dpsim.models.kernel_counts import Habits, KernelPasses
from dpsim.models.streams import Kernels


def accepts(own: Habits) -> bool:
    """Whether BERT's code in TensorFlow has such blocks."""
    other = own.rotary or own.gated or own.head_norms or own.composed or own.key < own.query
    return bool(own.dropout and own.products == 3 and own.norms == 1 and not other)


class _Graph(KernelPasses):
    """Launches and elements of a graph; `twice`: elements of 32 bits, in units of the dtype."""

    @property
    def twice(self) -> int:
        return 2 if self.autocast else 1

    def layer_norm(self, width: float, readers: int) -> None:
        self.forward.add(10, 15 * self.twice * width, whole=True)
        self.backward.add(21, 41 * self.twice * width, whole=True)
        self.backward.add(1, (readers + 1) * self.twice * width, whole=True)
        self.casted(width)

    def casted(self, width: float) -> None:
        """From 32 bits for a product, and its gradient back."""
        if self.autocast:
            self.forward.add(1, 3 * width)
            self.backward.add(1, 3 * width)

    def dropped(self, width: float, *, wide: bool) -> None:
        """Dropout of `width` elements, in 32 bits under autocast if `wide`."""
        random = (3.25 + self.mask) if not self.autocast else (2 + 5 + 3 * (not wide))
        data = self.twice if wide else 1
        self.forward.add(5, (random + 5 * data) * width)
        self.backward.add(2, 5 * data * width)

    def biases(self, tensors: Sequence[Tensor]) -> None:
        """Products, and an addition for the bias of each."""
        self.products(tensors)
        for tensor in tensors:
            if tensor.name.endswith("bias") and "norm" not in tensor.name.lower():
                self.forward.add(1, 2 * tensor.elements)

    def ending(self, width: float) -> None:
        """Dropout and the residual addition."""
        self.dropped(width, wide=False)
        self.residual(width, dropout=False)

    def attended(self, own: Habits) -> None:
        """Stored scores between their layouts."""
        a, q, k = own.scores, own.query, own.key
        self.forward.add(4, 4 * q + 4 * k)
        self.backward.add(4, 4 * q + 4 * k)
        self.forward.add(2 + 2 + 3, (2 + 4 + 4 * self.twice) * a)
        self.backward.add(4 + 4 + 1, (4 + 9 * self.twice + 2) * a)
        for _ in range(2):
            self.casted(a)
        if own.score_dropout:
            self.dropped(a, wide=True)


def attention(own: Habits, tensors: Sequence[Tensor], tokens: int) -> Kernels | None:
    """An attention half of `tokens` tokens; None where BERT's code has none like it."""
    if not accepts(own) or not own.scores:
        return None

    def count(found: _Graph) -> Kernels:
        found.layer_norm(own.hidden, readers=4)
        found.biases(tensors)
        found.attended(own)
        found.ending(own.hidden)
        h, q, k = own.hidden, own.query, own.key
        return found.counted(tokens, 4 * h + 2 * (q + 2 * k) + 2 * q)

    return _each(count)


def feed_forward(own: Habits, tensors: Sequence[Tensor], tokens: int) -> Kernels | None:
    """A feed-forward half of `tokens` tokens; None where BERT's code has none like it."""
    if not accepts(own):
        return None

    def count(found: _Graph) -> Kernels:
        found.layer_norm(own.hidden, readers=2)
        found.biases(tensors)
        found.forward.add(8, 18 * found.twice * own.ffn)
        found.backward.add(10, 26 * found.twice * own.ffn)
        for _ in range(2):
            found.casted(own.ffn)
        found.ending(own.hidden)
        return found.counted(tokens, 2 * (own.hidden + own.ffn))

    return _each(count)


def loss(width: int, vocabulary: int, tokens: int) -> Kernels:
    """The product with the vocabulary and the loss behind it."""

    def count(found: _Graph) -> Kernels:
        found.forward.add(1 + 1 + 3 + 3, (2 + 9 * found.twice) * vocabulary)
        found.backward.add(2 + 2 + 4 + 1, (1 + 12 * found.twice) * vocabulary)
        found.casted(vocabulary)
        if found.autocast:
            found.weights += 3.0 * width * vocabulary
        return found.counted(tokens, width + vocabulary)

    return _each(count)


def _each(count: Callable[[_Graph], Kernels]) -> Kernels:
    """What `count` finds in one dtype, with what it finds under autocast and in 32 bit."""
    cast, single = count(_Graph(False, autocast=True)), count(_Graph(False, single=True))
    return count(_Graph(False))._replace(autocast=cast, single=single)
