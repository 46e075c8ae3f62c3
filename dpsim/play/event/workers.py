"""Workers: each takes the cues of one stream of one player in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from dpsim.play.event.players import Player
from dpsim.play.event.score import HOST, TAKING, Cue
from dpsim.play.event.steps import RankTimes, Steps

#: what a worker waits for, where it is no operation's end: nothing; something special of its own
#: rank (the host, the step before)
NOTHING, SPECIAL = -1, -2


class Queue:
    """The cues of a stream that several workers share, in issue order."""

    def __init__(self, player: Player, stream: int) -> None:
        self.player, self.stream = player, stream
        self.step = self.place = 0

    def take(self) -> Cue | None:
        """The next cue, of step number `step`; None where there is none any more."""
        scores = self.player.scores
        while self.step < len(scores):
            cues = scores[self.step].of(self.stream)
            if self.place < len(cues) - 1:
                self.place += 1
                return cues[self.place - 1]
            self.step, self.place = self.step + 1, 0
        return None


class Worker:
    """Where it is: step, place among its cues; and what it is doing.

    free     when its last cue ended [s]
    ready    when it came to what it does with others, or began to work [s]
    blocked  the operation of its rank that it waits for, NOTHING or SPECIAL
    meets    what it waits for with others
    over     it has nothing more to do
    """

    __slots__ = (
        "blocked",
        "cues",
        "factor",
        "free",
        "late",
        "meets",
        "over",
        "place",
        "player",
        "queue",
        "ready",
        "step",
        "stream",
        "times",
    )  # fmt: skip

    def __init__(self, player: Player, stream: int, steps: Steps, queue: Queue | None) -> None:
        self.player, self.stream, self.queue = player, stream, queue
        self.free = self.ready = 0.0
        self.blocked, self.over = NOTHING, False
        self.meets: object = None
        self.cues: Sequence[Cue]
        self.enter(steps, 0)
        if queue is not None:  # it takes its first one
            self.cues = TAKING

    @property
    def cue(self) -> Cue:
        """The cue it is at."""
        return self.cues[self.place]

    def enter(self, steps: Steps, step: int, cue: Cue | None = None) -> None:
        """Go on with the cues of `step`, or with one of them."""
        player = self.player
        self.step, self.place = step, 0
        self.cues = player.scores[step].of(self.stream) if cue is None else (cue, *TAKING)
        self.times: RankTimes = steps.times(step, player)
        self.factor, self.late = player.factors[step], player.late[step]


#: what is called when the cues that workers are at have ended: when they started and ended [s]
Ended = Callable[[Sequence[Worker], float, float], None]


def enlist(player: Player, steps: Steps) -> list[Worker]:
    """All workers of a player, at the beginning."""
    for stream, width in player.widths.items():
        queue = Queue(player, stream) if width > 1 else None
        player.workers[stream] = [Worker(player, stream, steps, queue) for _ in range(width)]
    if HOST in player.widths:
        player.issued = [[inf] * len(score.program.ops) for score in player.scores]
    return [worker for workers in player.workers.values() for worker in workers]
