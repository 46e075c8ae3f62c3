"""What V-shaped schedules share: rank r of p holds stages r and 2p - 1 - r.

The first and the last stage are on rank 0, so the loss is next to the input (Qi et al. 2023,
arXiv:2401.10241, section 6).
"""

from __future__ import annotations

from dpsim.compile.schedules import Act, Schedule


class VShaped(Schedule):
    """A schedule whose stages go down the ranks and up again."""

    @property
    def chunks(self) -> int:
        return 2

    def rank_of(self, stage: int, ranks: int) -> int:
        return stage if stage < ranks else 2 * ranks - 1 - stage


class Writer:
    """Writes the list of one rank; each chunk's operations of a kind count micro-batches up.

    acts    the list so far
    blocks  where in it a forward stands that runs side by side with the backward after it
    stages  those of chunk 0 and of chunk 1
    first   the first micro-batch of each
    """

    def __init__(self, stages: tuple[int, int], first: tuple[int, int] = (0, 0)) -> None:
        self.acts: list[Act] = []
        self.blocks: list[int] = []
        self._stages, self._first = stages, first
        self._next: dict[tuple[int, str], int] = {}

    def add(self, *operations: str) -> None:
        """Append operations such as "F0": kind and chunk.

        "B" counts as "I" and "W": the next of either goes to the micro-batch after it.
        """
        for operation in operations:
            kind, chunk = operation[0], int(operation[1])
            micro_batch = self.count(kind if kind != "B" else "I", chunk)
            act = Act(self._stages[chunk], kind, self._first[chunk] + micro_batch)
            self.acts.append(act)
            for part in "IW" if kind == "B" else kind:
                self._next[chunk, part] = micro_batch + 1

    def block(self, forward: str, backward: str) -> None:
        """Append a forward and a backward that run side by side."""
        self.blocks.append(len(self.acts))
        self.add(forward, backward)

    def count(self, kind: str, chunk: int) -> int:
        """How many operations of `kind` of `chunk` there are by now."""
        return self._next.get((chunk, kind), 0)
