"""What DualPipe and its half have in common: the list of a rank with two chunks.

deepseek-ai/DualPipe at commit 3da1bbea, `step` of dualpipe/dualpipe.py and dualpipe/dualpipev.py,
whose eight steps differ in how ranks are counted only.
"""

from __future__ import annotations

from collections import deque

from dpsim.compile.schedules._v_shape import Writer


def lay_out(write: Writer, near: int, behind: int, turns: int) -> Writer:
    """Write the list of the rank that `near` others precede and `behind` others follow on the way
    to where chunk 0 goes over into the other chunk, or meets it; its middle has so many `turns`."""
    write.add(*["F0"] * (2 * behind))
    write.add(*["F0", "F1"] * (near + 1))
    write.add(*["I1", "W1", "F1"] * behind)
    for turn in range(turns):
        if turn or behind:
            write.block("F0", "B1")
        else:
            write.add("F0", "B1")
        write.block("F1", "B0")
    for _ in range(behind):
        write.add("B1")
        write.block("F1", "B0")
    _cool_down(write, near, behind)
    return write


def _cool_down(write: Writer, near: int, behind: int) -> None:
    """The last backwards: from the middle on they are split, and their W comes later."""
    waiting: deque[str] = deque()
    ends = ["1", "0"] * (near + 1)
    for number, chunk in enumerate(ends):
        if number <= near:
            write.add(f"B{chunk}")
        else:
            write.add(f"I{chunk}")
            waiting.append(f"W{chunk}")
    for _ in range(behind):
        write.add(waiting.popleft(), "I0")
        waiting.append("W0")
    write.add(*waiting)
