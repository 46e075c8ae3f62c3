"""Which algorithm an MPI library chooses by default, by number of ranks and message size.

Open MPI: the fixed rules of its component coll/tuned, for commutative operations
(ompi/mca/coll/tuned/coll_tuned_decision_fixed.c).
  4.0   the rules up to 4.0, made on a Myrinet cluster: open-mpi/ompi commit 010080ec; all-reduce
        the same in 1.6.5
  5.0   the tables since 4.1 (open-mpi/ompi pull requests 7730 and 7952): read in release 5.0 as
        kept at BullSequana/OpenMPI5 commit c3318e2f
MPICH:
  3     the thresholds of its control variables: ALLREDUCE_SHORT_MSG_SIZE 2048 B,
        BCAST_SHORT_MSG_SIZE 12288 B, BCAST_LONG_MSG_SIZE and ALLGATHER_LONG_MSG_SIZE 524288 B,
        ALLGATHER_SHORT_MSG_SIZE 81920 B, BCAST_MIN_PROCS 8 (Thakur, Rabenseifner and Gropp, Int.
        J. High Perform. Comput. Appl. 19 (2005) 49-66; pmodels/mpich src/mpi/coll, 3.x);
        REDUCE_SCATTER_COMMUTATIVE_LONG_MSG_SIZE 524288 B, ALLTOALL_SHORT_MSG_SIZE 256 B,
        ALLTOALL_MEDIUM_MSG_SIZE 32768 B (the same, 3.x)
  4     maint/tuning/coll/mpir/generic.json of pmodels/mpich commit 7e03fe85
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import NamedTuple

from dpsim.core.record import Refused


class MpiRule(NamedTuple):
    """An algorithm and the size of its segments [B]; 0: messages are sent whole."""

    algorithm: str
    segment: int = 0


#: (below so many ranks, ((below so many bytes, algorithm), ...)), the first that fits
Table = tuple[tuple[float, tuple[tuple[float, str], ...]], ...]

_RD, _RING, _SEG, _RAB, _TWO = (
    "recursive_doubling", "ring", "segmented_ring", "rabenseifner", "reduce_broadcast",
)  # fmt: skip
_ALL_REDUCE_5: Table = (
    (4, ((8, _RING), (4096, _RD), (8192, _RING), (16384, _RD), (65536, _RING), (262144, _SEG),
         (inf, _RAB))),
    (8, ((16, _RING), (8192, _RD), (inf, _RAB))),
    (16, ((8192, _RD), (inf, _RAB))),
    (32, ((64, _SEG), (4096, _RD), (inf, _RAB))),
    (64, ((128, _SEG), (inf, _RAB))),
    (128, ((262144, _RD), (inf, _RAB))),
    (256, ((131072, _TWO), (262144, _RD), (inf, _RAB))),
    (512, ((4096, _TWO), (inf, _RAB))),
    (2048, ((2048, _TWO), (16384, _RD), (inf, _RAB))),
    (4096, ((2048, _TWO), (4096, _SEG), (16384, _RD), (inf, _RAB))),
    (inf, ((2048, _TWO), (16384, _SEG), (32768, _RD), (inf, _RAB))),
)  # fmt: skip
_BRUCK, _NEAR, _PAIR = "bruck", "neighbor_exchange", "two_ranks"
#: by the bytes of one rank
_ALL_GATHER_5: Table = (
    (3, ((inf, _PAIR),)),
    (32, ((inf, _RD),)),
    (64, ((1024, _RD), (65536, _NEAR), (inf, _RING))),
    (128, ((512, _RD), (65536, _NEAR), (inf, _RING))),
    (256, ((512, _RD), (131072, _NEAR), (524288, _RING), (1048576, _NEAR), (inf, _RING))),
    (512, ((32, _RD), (128, _BRUCK), (1024, _RD), (131072, _NEAR), (524288, _RING),
           (1048576, _NEAR), (inf, _RING))),
    (1024, ((64, _RD), (256, _BRUCK), (2048, _RD), (inf, _NEAR))),
    (2048, ((4, _RD), (8, _BRUCK), (16, _RD), (32, _BRUCK), (256, _RD), (512, _BRUCK), (4096, _RD),
            (inf, _NEAR))),
    (4096, ((32, _BRUCK), (128, _RD), (512, _BRUCK), (4096, _RD), (inf, _NEAR))),
    (inf, ((2, _RD), (8, _BRUCK), (16, _RD), (512, _BRUCK), (4096, _RD), (inf, _NEAR))),
)  # fmt: skip
_LINEAR, _CHAIN, _PIPE, _SPLIT, _BINARY, _BINOMIAL, _KNOMIAL, _SCATTER = (
    "linear", "chain", "pipeline", "split_binary_tree", "binary_tree", "binomial_tree",
    "knomial_tree", "scatter_recursive_doubling",
)  # fmt: skip
_BROADCAST_5: Table = (
    (4, ((32, _PIPE), (256, _BINARY), (512, _PIPE), (1024, _KNOMIAL), (32768, _LINEAR),
         (131072, _BINARY), (262144, _CHAIN), (524288, _LINEAR), (1048576, _BINOMIAL),
         (inf, _BINARY))),
    (8, ((64, _BINARY), (128, _BINOMIAL), (2048, _BINARY), (8192, _BINOMIAL), (1048576, _LINEAR),
         (inf, _CHAIN))),
    (16, ((8, _KNOMIAL), (64, _BINARY), (4096, _KNOMIAL), (16384, _BINARY), (32768, _BINOMIAL),
          (inf, _LINEAR))),
    (32, ((4096, _KNOMIAL), (1048576, _BINOMIAL), (inf, _SCATTER))),
    (64, ((2048, _BINOMIAL), (inf, _KNOMIAL))),
    (128, ((inf, _KNOMIAL),)),
    (256, ((2, _BINOMIAL), (16384, _BINARY), (32768, _LINEAR), (65536, _BINARY), (inf, _KNOMIAL))),
    (1024, ((16384, _KNOMIAL), (32768, _SPLIT), (inf, _KNOMIAL))),
    (2048, ((524288, _KNOMIAL), (inf, _SCATTER))),
    (4096, ((262144, _KNOMIAL), (inf, _SCATTER))),
    (inf, ((8192, _KNOMIAL), (16384, _BINARY), (262144, _KNOMIAL), (inf, _SCATTER))),
)  # fmt: skip
_HALF, _BUTTER, _EACH, _APART = "recursive_halving", "butterfly", "pairwise", "reduce_and_scatter"
_REDUCE_SCATTER_5: Table = (
    (4, ((65536, _RING), (131072, _BUTTER), (inf, _RING))),
    (8, ((8, _APART), (262144, _HALF), (inf, _RING))),
    (32, ((262144, _HALF), (inf, _RING))),
    (64, ((64, _APART), (2048, _HALF), (524288, _BUTTER), (inf, _RING))),
    (128, ((256, _APART), (512, _HALF), (2048, _BUTTER), (4096, _HALF), (inf, _BUTTER))),
    (256, ((256, _APART), (512, _HALF), (inf, _BUTTER))),
    (512, ((256, _APART), (1024, _HALF), (inf, _BUTTER))),
    (1024, ((512, _APART), (2048, _HALF), (8192, _BUTTER), (16384, _HALF), (inf, _BUTTER))),
    (2048, ((512, _APART), (4096, _HALF), (16384, _BUTTER), (32768, _HALF), (inf, _BUTTER))),
    (4096, ((512, _APART), (4096, _HALF), (inf, _BUTTER))),
    (inf, ((1024, _APART), (8192, _HALF), (inf, _BUTTER))),
)  # fmt: skip
#: by the bytes for one rank; messages that leave at once, in turn ("linear_sync") or not
_ALL_TO_ALL_5: Table = (
    (3, ((inf, _EACH),)),
    (8, ((524288, _LINEAR), (1048576, _EACH), (inf, _LINEAR))),
    (16, ((inf, _LINEAR),)),
    (32, ((4, _LINEAR), (512, _BRUCK), (inf, _LINEAR))),
    (64, ((512, _BRUCK), (inf, _LINEAR))),
    (256, ((1024, _BRUCK), (262144, _LINEAR), (inf, _EACH))),
    (512, ((1024, _BRUCK), (32768, _LINEAR), (inf, _EACH))),
    (1024, ((512, _BRUCK), (262144, _LINEAR), (inf, _EACH))),
    (2048, ((512, _BRUCK), (inf, _LINEAR))),
    (4096, ((1024, _BRUCK), (inf, _LINEAR))),
    (inf, ((2048, _BRUCK), (inf, _LINEAR))),
)  # fmt: skip


def _by_table(table: Table, n: int, size: float) -> str:
    sizes = next(sizes for below, sizes in table if n < below)
    return next(name for below, name in sizes if size < below)


def _power(n: int) -> bool:
    return n.bit_count() == 1


def _open_mpi_5(operation: str, n: int, size: float) -> MpiRule:
    if operation == "all_reduce":
        name = _by_table(_ALL_REDUCE_5, n, size)
        fewer = size / 4 < n  # elements, taken to be of 4 bytes: rings then fall back so
        return MpiRule(_RD if fewer and name in (_RING, _SEG) else name)
    if operation == "broadcast":
        return MpiRule(_by_table(_BROADCAST_5, n, size))
    if operation == "reduce_scatter":
        return MpiRule(_by_table(_REDUCE_SCATTER_5, n, size))
    if operation == "all_to_all":
        return MpiRule(_by_table(_ALL_TO_ALL_5, n, size / n))
    name = _by_table(_ALL_GATHER_5, n, size / n)
    if name == _RD and not _power(n):
        name = _BRUCK  # coll/base falls back so
    if name == _NEAR and n % 2:
        name = _RING
    return MpiRule(name)


def _first(cases: Iterable[tuple[bool, MpiRule]], otherwise: MpiRule) -> MpiRule:
    """The rule of the first case that holds."""
    return next((rule for holds, rule in cases if holds), otherwise)


def _all_reduce_4(n: int, size: float) -> MpiRule:
    cases = (
        (size < 10_000, MpiRule(_RD)),
        # elements of at least 4 bytes: fewer than ranks only where nobody's share is one
        (size / 4 <= n, MpiRule(_TWO)),
        (size <= n * 2**20, MpiRule(_RING)),
    )
    return _first(cases, MpiRule(_SEG, 2**20))


def _all_gather_4(n: int, size: float) -> MpiRule:
    cases = ((n == 2, MpiRule(_PAIR)), (size < 50_000, MpiRule(_RD if _power(n) else _BRUCK)))
    return _first(cases, MpiRule(_RING if n % 2 else _NEAR))


def _broadcast_4(n: int, size: float) -> MpiRule:
    cases = (
        (size < 2048, MpiRule(_BINOMIAL)),
        (size < 370_728, MpiRule(_SPLIT, 1024)),
        (n < 1.6134e-6 * size + 2.1102, MpiRule(_PIPE, 128 * 1024)),
        (n < 13, MpiRule(_SPLIT, 8 * 1024)),
        (n < 2.3679e-6 * size + 1.1787, MpiRule(_PIPE, 64 * 1024)),
        (n < 3.2118e-6 * size + 8.7936, MpiRule(_PIPE, 16 * 1024)),
    )
    return _first(cases, MpiRule(_PIPE, 8 * 1024))


def _reduce_scatter_4(n: int, size: float) -> MpiRule:
    few = size <= 12 * 1024 or (size <= 256 * 1024 and _power(n)) or n >= 0.0012 * size + 8
    return MpiRule(_HALF if few else _RING)


def _all_to_all_4(n: int, size: float) -> MpiRule:
    part = size / n
    cases = ((n == 2, MpiRule(_EACH)), (part < 200 and n > 12, MpiRule(_BRUCK)),
             (part < 3000, MpiRule(_LINEAR)))  # fmt: skip
    return _first(cases, MpiRule(_EACH))


_OPEN_MPI_4 = {
    "all_reduce": _all_reduce_4, "all_gather": _all_gather_4, "broadcast": _broadcast_4,
    "reduce_scatter": _reduce_scatter_4, "all_to_all": _all_to_all_4,
}  # fmt: skip


def _mpich(operation: str, n: int, size: float, short: float) -> MpiRule:
    """`short`: an all-reduce of at most so many bytes is recursive doubling."""
    if operation == "all_reduce":
        few = size / 4 < 1 << (n.bit_length() - 1)  # elements, taken to be of 4 bytes
        return MpiRule(_RD if size <= short or few else _RAB)
    if operation == "all_gather":
        if _power(n) and size < 524_288:
            return MpiRule(_RD)
        return MpiRule(_BRUCK if size < 81_920 and not _power(n) else _RING)
    return MpiRule("")  # a broadcast, whose thresholds differ between versions


def _mpich_3(operation: str, n: int, size: float) -> MpiRule:
    if operation == "reduce_scatter":
        return MpiRule(_HALF if size < 524_288 else _EACH)
    if operation == "all_to_all":
        part = size / n
        return MpiRule(_BRUCK if part <= 256 and n >= 8 else _LINEAR if part <= 32_768 else _EACH)
    if operation != "broadcast":
        return _mpich(operation, n, size, 2048)
    if size < 12_288 or n < 8:
        return MpiRule("binomial_rounds")
    return MpiRule(_SCATTER if size < 524_288 and _power(n) else "scatter_ring")


def _mpich_4(operation: str, n: int, size: float) -> MpiRule:
    if operation in ("reduce_scatter", "all_to_all"):
        message = (
            f'which {operation} MPICH 4 takes is not known; version "3", or algorithm, is accepted'
        )
        raise Refused(message, ("collective", "version"))
    if operation != "broadcast":
        return _mpich(operation, n, size, 8)
    if n < 8 or size <= 12_288:
        return MpiRule("binomial_rounds")
    return MpiRule(_SCATTER if _power(n) and size <= 524_288 else "scatter_ring")


#: what can be asked for by name, by operation
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": (_RD, _RING, _RAB),
    "all_gather": (_RD, _RING, _BRUCK, _NEAR),
    "reduce_scatter": (_HALF, _RING, _EACH, _RD),
    "all_to_all": (_LINEAR, _EACH),
    "broadcast": (_LINEAR, _BINARY, _BINOMIAL, _KNOMIAL, _SCATTER, "scatter_ring"),
}
OPERATIONS = tuple(ALGORITHMS)
#: by implementation and version, the newest last
RULES: dict[str, dict[str, Callable[[str, int, float], MpiRule]]] = {
    "open_mpi": {
        "4.0": lambda operation, n, size: _OPEN_MPI_4[operation](n, size),
        "5.0": _open_mpi_5,
    },
    "mpich": {"3": _mpich_3, "4": _mpich_4},
}


def _require_operation(operation: str) -> None:
    if operation not in OPERATIONS:
        known = ", ".join((*OPERATIONS, "send"))
        raise Refused(
            f"backend mpi has no {operation}; there are {known}", ("collective", "backend")
        )


def choose(implementation: str, version: str, operation: str, n: int, size: float) -> MpiRule:
    """What the library takes for `operation` on `size` bytes (full size) over `n` ranks."""
    _require_operation(operation)
    return RULES[implementation][version](operation, n, size)


def forced(algorithm: str, operation: str, n: int) -> MpiRule:
    """`algorithm`, whole messages, for `operation` over `n` ranks; where it cannot have so many,
    what libraries take in its place.  Refused where the operation has no such algorithm."""
    _require_operation(operation)
    if algorithm not in ALGORITHMS[operation]:
        known = ", ".join(ALGORITHMS[operation])
        message = f"{operation} has no algorithm {algorithm} in backend mpi; there are {known}"
        raise Refused(message, ("collective", "algorithm"))
    if operation == "all_gather":
        if algorithm == _RD and not _power(n):
            return MpiRule(_BRUCK)
        if algorithm == _NEAR and n % 2:
            return MpiRule(_RING)
    return MpiRule(algorithm)
