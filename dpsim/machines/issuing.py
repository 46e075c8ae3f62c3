"""How long one host thread takes to launch a collective on several GPUs, one after the other.

With `-g 8` one thread of nccl-tests launches the kernels of eight GPUs for every repetition
(NVIDIA/nccl-tests src/common.cu, `startColl`), so small sizes all take as long as that takes: 34 to
36 us for an all-reduce, broadcast or reduce of eight A100, and 85 to 90 us up to 2 MiB for an
all-to-all, which has eight sends and eight receives each (logs in microsoft/superbenchmark,
tests/data).  They say nothing of the links: a framework's ranks have a process each.
"""

from __future__ import annotations

from collections.abc import Sequence

#: most that launching on one GPU takes [s], a tenth more than the 11 us of an all-to-all of eight,
#: and than the 4.5 us of others
_MOST, _MOST_OTHERS = 12e-6, 5e-6
#: how much longer than the quickest size one may take that takes as long as launching, and how many
#: such sizes there are at least: sizes that take alike
_ALIKE, _LEAST = 1.25, 3


def issued_up_to(timed: Sequence[tuple[float, float]], operation: str | None, gpus: int) -> float:
    """The largest size [bytes] that takes as long as a thread takes to launch on its `gpus` GPUs; 0
    where all of `timed`, sizes [bytes] with seconds, tell of the links."""
    least = min(seconds for _, seconds in timed)
    longest = gpus * (_MOST if operation == "all_to_all" else _MOST_OTHERS)
    if gpus < 2 or least > longest:
        return 0.0
    most = min(_ALIKE * least, longest)
    short = [size for size, seconds in timed if seconds <= most]
    return max(short) if len(short) >= _LEAST else 0.0
