"""torch's powerSGD_hook: matrices of gradients travel as two thin factors, one after the other."""

from __future__ import annotations

from math import prod
from typing import Annotated, NamedTuple

from dpsim.compile.compression import Payload, Transit, Work
from dpsim.compile.compression._codec import width
from dpsim.compile.compression._low_rank import LowRank
from dpsim.core import units
from dpsim.core.record import record

Rate = Annotated[float, units.Unit("1", low=0.0, high=1e9)]


class _Matrix(NamedTuple):
    rows: int
    columns: int
    rank: int

    @property
    def elements(self) -> int:
        return self.rows * self.columns


@record
class PowerSgd(LowRank):
    """Every tensor as a matrix of its first dimension's rows; vectors, and what would not become
    smaller by more than `min_compression_rate`, are all-reduced as they are before.

    Layers whose tensors are given by their number of elements have no matrices; `parameters:
    [[4096, 1024]]` gives one.

    min_compression_rate  by what the factors must be smaller than the matrix, and not as much only
    """

    min_compression_rate: Rate = 2.0

    def transits(self, payload: Payload, ranks: int) -> tuple[Transit, ...]:
        matrices, vectors = self.split(payload)
        size, kept = width(payload), width(payload) * sum(vectors)
        each = [self.orthogonal(m.rank) + 1 for m in matrices]
        product = _product(matrices, size, sum(each))
        feedback = 5 * payload.bytes if self.error_feedback else 0
        first = product + Work((feedback + 2 * kept) / 2, kernels=3 if self.error_feedback else 1)
        unpacked = Work(2 * kept, kernels=1 + len(vectors))
        found = [Transit("all_reduce", kept, first)] if vectors else []
        if matrices:
            rows = size * sum(m.rows * m.rank for m in matrices)
            columns = size * sum(m.columns * m.rank for m in matrices)
            encode = unpacked if found else first
            found.append(Transit("all_reduce", rows, encode, awaits=bool(found)))
            found.append(Transit("all_reduce", columns, product, awaits=True))
        return tuple(found)

    def decode(self, payload: Payload, ranks: int) -> Work:
        """M = P Q^T, and the left-over gradients."""
        matrices, _ = self.split(payload)
        left = 3 * payload.bytes / 2 if self.error_feedback else 0.0
        return _product(matrices, width(payload), 2 + len(matrices)) + Work(left)

    def memory(self, payload: Payload, ranks: int) -> dict[str, float]:
        """Left-over gradients, and a copy of the bucket until they are known; the factors."""
        matrices, _ = self.split(payload)
        factors = sum((m.rows + m.columns) * m.rank for m in matrices)
        kept = {"low-rank factors": float(width(payload) * factors)}
        if self.error_feedback:
            kept |= {"error feedback": float(payload.bytes), "copies of buckets": payload.bytes}
        return kept

    def idle(self, payload: Payload) -> str | None:
        if self.split(payload)[0]:
            return None
        return (
            "no tensor is a matrix that its factors are smaller than; explicit layers give "
            "matrices as `parameters: [[4096, 1024]]`"
        )

    def split(self, payload: Payload) -> tuple[list[_Matrix], list[int]]:
        """The matrices that become factors, and the sizes of what travels as it is."""
        matrices, vectors = [], []
        for shape in payload.shapes:
            rows, columns = (shape[0], prod(shape[1:])) if shape else (1, 1)
            rank = min(rows, columns, self.rank)
            if (rows + columns) * rank * self.min_compression_rate < rows * columns:
                matrices.append(_Matrix(rows, columns, rank))
            else:
                vectors.append(rows * columns)
        return matrices, vectors


def _product(matrices: list[_Matrix], size: int, kernels: float) -> Work:
    """Matrices times thin factors: each is read (or written) once; 2 FLOP an element and
    column."""
    moved = size * sum(m.elements for m in matrices)
    flop = sum(2.0 * m.elements * m.rank for m in matrices)
    return Work(moved / 2, flop=flop, kernels=kernels)
