"""Effort: what it takes to play a case, known before anything but its programs is made.

Every constant of an engine's appetite is here, to be set again where engines change;
``benchmarks/engines.py`` prints what they are estimates of.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from dpsim.cases.case import Case
from dpsim.cases.chapters import Chapters
from dpsim.cases.variant import with_micro_batches
from dpsim.compile.program import Cast
from dpsim.core.record import Refused
from dpsim.describe.scenario import Loaded

#: seconds of playing, as estimated, beyond which a run is refused
LIMIT = 3600.0
#: share of the machine's memory that a run may take
SHARE = 0.8
#: seconds of playing that are worth a word before they begin
LONG = 30.0
#: memory where the system does not say how much there is [B]
MEMORY = 8e9
#: micro-batches of a step beyond which operations are counted on two shorter steps
COUNTED = 64


@dataclass(frozen=True)
class Appetite:
    """What an engine needs.

    operation  CPU seconds for an operation of a program and step, however many play it [s]
    share      CPU seconds for each player's part in it [s]
    kept       bytes for each player's part in it, as long as its step is kept [B]
    player     bytes for each player, whatever it does [B]
    steps      steps that are kept; None: all
    """

    operation: float
    share: float
    kept: float
    player: float = 0.0
    steps: int | None = None


#: benchmarks/engines.py on a 2-core x86-64 machine, Llama-3-8B: 3 us and 250 B an operation and
#: rank (event, FSDP2); 12-25 us an operation, 0.1 ns and 500 B a rank beside that (vectorised, DDP
#: on 1,024 to 1,048,576 ranks); 0.13 us and 15 B for each rank's part where ranks are apart
#: (vectorised, hybrid shards of 8 on 65,536 ranks)
EVENT = Appetite(0.0, 3.5e-6, 300.0)
VECTORISED = Appetite(2.5e-5, 1.5e-10, 0.0, player=500.0, steps=2)
APART = Appetite(2.5e-5, 1.5e-7, 20.0, player=500.0, steps=2)
#: bytes of an operation of a program, by whomever it is played [B]
OPERATION = 1500.0


@dataclass(frozen=True)
class Effort:
    """How much there is to play.

    players     ranks that play; those in lockstep are one player
    steps       of the first play
    operations  of a player in a step, in the mean over programs
    transfers   of a collective that are played one by one, over all ranks; 0: none are
    apart       ranks of one program do different things with others: several groups, or transfers
    """

    players: int
    steps: int
    operations: float
    transfers: int = 0
    apart: bool = False

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
        each = engine.operation + engine.share * self.players
        return self.steps * self.operations * each * (1 + self.transfers)

    def bytes(self, engine: Appetite) -> float:
        """Rough bytes that playing needs [B]."""
        steps = self.steps if engine.steps is None else min(self.steps, engine.steps)
        each = steps * self.operations * engine.kept + engine.player
        return self.operations * OPERATION + self.players * each


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
    return Effort(players, steps, _operations(case), transfers, not alike and _apart(_cast(case)))


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
    count = case.scenario.batch.accumulation
    if count <= 2 * COUNTED:
        return _counted(case)
    one, other = (_counted(with_micro_batches(case, n)) for n in (COUNTED, 2 * COUNTED))
    return one + (other - one) / COUNTED * (count - COUNTED)


def _counted(case: Case) -> float:
    cast = _cast(case)
    return sum(len(program.ops) for program in cast.programs) / len(cast.programs)


def memory() -> float:
    """Bytes that a run may take on this machine [B]."""
    try:
        return SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        return MEMORY


def check_affordable(case: Case, effort: Effort, engine: Appetite) -> None:
    """Refuse playing that would take longer than LIMIT or more memory than there is, with what
    would work."""
    seconds, size, room = effort.seconds(engine), effort.bytes(engine), memory()
    if seconds <= LIMIT and size <= room:
        return
    rounds = effort.transfers > 0
    way = "event by event" if engine is EVENT else "in one pass over all ranks"
    raise Refused(
        f"playing {case.ranks:,} ranks {way} would take about {_shown(seconds)} (limit "
        f"{_shown(LIMIT)}) and {_size(size)} of memory (this machine: {_size(room)}); "
        + _instead(case, effort, engine),
        ("detail",) if rounds else ("engine",),
    )


def forecast(loaded: Loaded, shared: Chapters) -> str:
    """What the largest point of `loaded` takes, in words, where that is long or much; else ""."""
    point = max(loaded.points, key=lambda one: one.cluster.ranks or one.cluster.nodes or 1)
    case = Case(point, loaded.base, shared=shared)
    try:
        effort = effort_of(case)
        engines = effort.appetites("event" if point.detail == "rounds" else point.engine)
        engine = min(engines, key=effort.seconds)
        seconds, size = effort.seconds(engine), effort.bytes(engine)
        if seconds <= LONG and size <= memory() / 4:
            return ""
        return f"{case.ranks:,} ranks take about {_shown(seconds)} and {_size(size)} of memory"
    except ValueError:  # whoever plays it says what is wrong with it
        return ""


def _instead(case: Case, effort: Effort, engine: Appetite) -> str:
    """What would work, in words."""
    if effort.transfers:
        return "detail: collective is much faster"
    whole = effort.vectorised
    if engine is EVENT and effort.seconds(whole) <= LIMIT and effort.bytes(whole) <= memory():
        return "engine: auto or vectorised is much faster"
    over = max(effort.seconds(engine) / LIMIT, effort.bytes(engine) / memory())
    ways = [f"about {max(int(case.ranks / over), 1):,} ranks"]
    fixed = effort.bytes(engine) > memory() and engine.steps is not None
    if case.scenario.variability.random and int(effort.steps / over) > 2 and not fixed:
        ways.append(f"variability.steps of {int(effort.steps / over) - 2:,}")
    if case.scenario.batch.accumulation > over:
        ways.append(f"batch.accumulation of {int(case.scenario.batch.accumulation / over):,}")
    return f"{' or '.join(ways)} would do"


def _shown(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 600 else f"{seconds:,.0f} s"


def _size(size: float) -> str:
    return f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e9:,.1f} GB"
