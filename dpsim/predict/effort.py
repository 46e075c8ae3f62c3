"""Effort: what it takes to play a case, known before anything but its programs is made.

Every constant of an engine's appetite is here, to be set again where engines change;
``benchmarks/engines.py`` prints what they are estimates of.
"""

from __future__ import annotations

from dpsim.cases.case import Case
from dpsim.cases.variant import with_micro_batches
from dpsim.compile.program import Cast
from dpsim.core.lean import dataclass
from dpsim.core.record import Refused

#: micro-batches of a step beyond which operations are counted on two shorter steps: where a rank
#: has all layers, whose micro-batches may be played as fewer, and where they go through stages
COUNTED, COUNTED_STAGES = 64, 8


@dataclass(frozen=True)
class Appetite:
    """What an engine needs.

    operation  CPU seconds for an operation of a program and step, however many play it [s]
    share      CPU seconds for each player's part in it [s]
    kept       bytes for each player's part in it, as long as its step is kept [B]
    rank       bytes for each rank, whatever it does [B]
    reached    CPU seconds for each rank that an operation reaches, played or not: its links [s]
    shared     the same where another may need these links at the same time [s]
    steps      steps that are kept; None: all
    folds      whether ranks that do the same at the same time are one player
    meeting    CPU seconds for each pair of players, where communicators meet on links: all their
               rates are worked out anew whenever one of them is through [s]
    """

    operation: float
    share: float
    kept: float
    rank: float
    reached: float = 0.0
    shared: float = 0.0
    steps: int | None = None
    folds: bool = False
    meeting: float = 0.0


#: benchmarks/engines.py on a 2-core x86-64 machine, Llama-3-8B: 3 us and 250 B an operation and
#: player (event, FSDP2); 3 to 6 ns of an operation and 2.7 kB a rank beside that where ranks are
#: alike (event; DDP, FSDP2, ZeRO-3 and Horovod on 64 to 4,096 ranks, DDP on 131,072), and 300 ns
#: where collectives share links (event, on 8,192; gloo's threads on fewer ranks take up to 2 us);
#: 12-25 us an operation, 0.1 ns and 500 B a rank beside that (vectorised, DDP on 1,024 to 1,048,576
#: ranks); 0.13 us and 15 B for each rank's part where ranks are apart (vectorised, hybrid shards of
#: 8 on 65,536 ranks); 0.13 us for each pair of ranks (event, FSDP2 beside contexts of two ranks and
#: 2 % of jitter, on 16 to 256)
EVENT = Appetite(
    0.0, 3.5e-6, 300.0, rank=2700.0, reached=5e-9, shared=3e-7, folds=True, meeting=1.3e-7
)
VECTORISED = Appetite(2.5e-5, 1.5e-10, 0.0, rank=500.0, steps=2)
APART = Appetite(2.5e-5, 1.5e-7, 20.0, rank=500.0, steps=2)
#: bytes of an operation of a program, by whomever it is played [B]
OPERATION = 1500.0


@dataclass(frozen=True)
class Effort:
    """How much there is to play.

    players     ranks that play; stages in lockstep are one
    folded      of these, such as differ from one another, where an engine can tell
    steps       of the first play
    operations  of a player in a step, in the mean over programs
    transfers   of a collective that are played one by one, over all ranks; 0: none are
    apart       ranks of one program do different things with others: several groups, or transfers
    sharing     collectives of one communicator run at once, or those of different groups do
    """

    players: int
    folded: int
    steps: int
    operations: float
    transfers: int = 0
    apart: bool = False
    sharing: bool = True

    @property
    def vectorised(self) -> Appetite:
        """What the vectorised engine needs here."""
        return APART if self.apart else VECTORISED

    def appetites(self, engine: str) -> tuple[Appetite, ...]:
        """What the engines of a scenario's `engine` need."""
        found = {"event": (EVENT,), "vectorised": (self.vectorised,)}
        return found.get(engine, (EVENT, self.vectorised))

    def seconds(self, engine: Appetite) -> float:
        """Rough CPU seconds of playing [s]."""
        each = engine.operation + engine.share * self._parts(engine)
        reached = engine.shared if self.sharing else engine.reached
        each = each * (1 + self.transfers) + reached * self.players
        return self.steps * self.operations * each

    def meeting(self, engine: Appetite, steps: int | None = None) -> float:
        """The same where communicators of ranks at paces of their own are known to meet on links,
        of so many `steps` [s]."""
        return (steps or self.steps) * self.operations * engine.meeting * self.players**2

    def bytes(self, engine: Appetite) -> float:
        """Rough bytes that playing needs [B]."""
        steps = self.steps if engine.steps is None else min(self.steps, engine.steps)
        parts = steps * self.operations * engine.kept * self._parts(engine)
        return self.operations * OPERATION + parts + engine.rank * self.players

    def _parts(self, engine: Appetite) -> int:
        return self.folded if engine.folds else self.players


def effort_of(case: Case) -> Effort:
    """The effort of `case`: neither routes nor plans are made for it."""
    scenario, mesh = case.scenario, case.mesh
    varies, rounds = scenario.variability.varies, scenario.detail == "rounds"
    alike = not (mesh.plain or rounds or varies) and min(case.shares) == max(case.shares)
    if scenario.iteration != "steady":
        steps = scenario.iteration
    elif scenario.variability.random:
        steps = scenario.variability.steps + 2
    else:
        steps = 4 if mesh.plain else 2
    players = mesh.pipeline if alike else case.ranks
    transfers = 4 * case.ranks if rounds else 0
    # the programs of a long step take their time, and ranks that are alike don't ask for them
    apart, folded, sharing = False, players, True
    if not alike:
        cast = _cast(case)
        apart = _apart(cast)
        if not (apart or rounds):
            folded = min(_paces(case) * len(cast.programs), players)
            sharing = case.backend.concurrency > 1
    # no level of compute makes operations of a scenario more or fewer
    operations = case.shared.noted((scenario, case.base), lambda: _operations(case))
    return Effort(players, folded, steps, operations, transfers, apart, sharing)


def _paces(case: Case) -> int:
    """How many paces there are at which ranks with one program compute, at most."""
    varied = case.scenario.variability
    if varied.random or varied.delays or case.scenario.strategy.backup_workers:
        return case.ranks
    return 1 + len(set(case.batches.variation.fixed.values()))


def _cast(case: Case) -> Cast:
    return case.programs.cast(None if case.scenario.iteration == "steady" else 1)


def _apart(cast: Cast) -> bool:
    """Whether ranks of one program do different things with others."""
    return any(
        program.transfers or any(len(cast.groups[name]) > 1 for name in program.collective_groups)
        for program in cast.programs
    )


def _operations(case: Case) -> float:
    """Operations of a rank in a step: long steps grow by as much with every micro-batch."""
    count, stages = case.batch.accumulation, case.mesh.pipeline
    least = max(COUNTED if case.mesh.plain else COUNTED_STAGES, 2 * stages)
    for few in range(least, least + stages):  # one of them is a multiple of the stages
        if count > 2 * few and _taken(case, few) and _taken(case, 2 * few):
            one, other = (_counted(with_micro_batches(case, n)) for n in (few, 2 * few))
            return one + (other - one) / few * (count - few)
    return _counted(case)


def _taken(case: Case, count: int) -> bool:
    """Whether the schedule of `case` takes so many micro-batches."""
    try:
        case.programs.layout.schedule.refuse(case.mesh.pipeline, count)
    except Refused:
        return False
    return True


def _counted(case: Case) -> float:
    cast = _cast(case)
    return sum(len(program.ops) for program in cast.programs) / len(cast.programs)


def shown(seconds: float) -> str:
    """`seconds` in words."""
    return f"{seconds / 3600:,.1f} h" if seconds >= 600 else f"{seconds:,.0f} s"
