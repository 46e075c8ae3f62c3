"""What a layer's kernels launch and move: counted kernel by kernel, and as what a pass streams."""

from __future__ import annotations

from typing import NamedTuple


class Kernels(NamedTuple):
    """What a layer's passes come to kernel by kernel (`dpsim.models.kernel_counts`).

    forward, backward    device kernels launched
    moved, moved_back    elements per sample that kernels move which are neither products nor flash
                         attention, in forward and in backward
    products             elements per sample that those two move in forward (backward: twice; of
                         image networks once for the first)
    weights              elements that are moved once a micro-batch in either pass
    autocast             the same where autocast casts at each product; None: not counted
    single               the same in 32 bit, where nothing is widened; None: as these
    turned               elements per sample that convolutions read and write, each copied there
                         and back where channels come first; backward as often for each gradient
    whole, whole_back    of `moved` and `moved_back`, what lies outside the cut of tensor
                         parallelism: norms, residual additions and dropouts of the whole width
    """

    forward: int
    backward: int
    moved: float
    moved_back: float
    products: float
    weights: float = 0.0
    autocast: Kernels | None = None
    single: Kernels | None = None
    whole: float = 0.0
    whole_back: float = 0.0
    turned: float = 0.0

    def scaled(self, work: float, parameters: float) -> Kernels:
        """`work` times as much of each sample, and of `parameters` times as many weights."""
        return self._replace(
            moved=self.moved * work,
            moved_back=self.moved_back * work,
            products=self.products * work,
            weights=self.weights * parameters,
            autocast=self.autocast and self.autocast.scaled(work, parameters),
            single=self.single and self.single.scaled(work, parameters),
            whole=self.whole * work,
            whole_back=self.whole_back * work,
            turned=self.turned * work,
        )


class CodedKernels(NamedTuple):
    """A layer's kernels run one by one as code other than transformers' writes them, by the
    names of `execution.code`; None: it has no such layer."""

    nanotron: Kernels | None = None
    tensorflow: Kernels | None = None
    torchtitan: Kernels | None = None


class Streamed(NamedTuple):
    """Elements per sample that a layer's kernels move one after the other with products.

    forward, backward  all of them, in either pass
    whole, whole_back  of these, what each of the ranks that share the layer moves whole, unless
                       they split the sequence too (Korthikanti et al., arXiv:2205.05198, section
                       4.2.1: norms and dropouts outside the cut)
    """

    forward: float
    backward: float
    whole: float = 0.0
    whole_back: float = 0.0

    def times(self, factor: float) -> Streamed:
        """`factor` times as much of everything."""
        return Streamed(*(factor * moved for moved in self))

    def shared(self, ranks: int, *, sequence: bool) -> Streamed:
        """What each of `ranks` tensor ranks moves."""
        if sequence:
            return self.times(1.0 / ranks)
        ahead, back = self.forward - self.whole, self.backward - self.whole_back
        return self._replace(
            forward=self.whole + ahead / ranks, backward=self.whole_back + back / ranks
        )
