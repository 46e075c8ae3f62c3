"""What systems have in common whose workers train apart: who is a worker, what one keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from dpsim.compile.exchange import Exchange, Work
from dpsim.compile.groups import Partition, consecutive, strided
from dpsim.compile.held import Held, constant
from dpsim.compile.job import Job, gradients_of, parameters_of, state_bytes
from dpsim.compile.program import Program
from dpsim.compile.rhythm import Rhythm
from dpsim.compile.step import ExchangeStep
from dpsim.compile.strategies import Folded, Strategy
from dpsim.compile.strategies._inside import Around
from dpsim.compile.strategies._rounds import (
    ALONE,
    PEERS,
    WORKER,
    Trade,
    mean_step,
    single_step,
    within,
)
from dpsim.compile.strategies.ddp import Ddp
from dpsim.core import plugins
from dpsim.core.dtypes import DTYPE_BYTES
from dpsim.core.plugins import name_of
from dpsim.core.record import Refused

#: widths of what travels between workers [B], beside those of dtypes
WIDTHS = {**DTYPE_BYTES, "fp4": 0.5, "int4": 0.5}


@dataclass(frozen=True)
class _Inside(plugins.Plugin):
    """A strategy inside another, whose schema is that of all strategies once more."""

    def json_schema(self) -> dict[str, Any]:
        """Its name alone: a schema that held itself would have no end."""
        known = {"type": "string", "enum": list(plugins.names(self.folder))}
        return {"type": "object", "properties": {self.tag: known}, "required": [self.tag]}


#: what the key `inner` is annotated with
Inner = Annotated[Strategy, _Inside("strategies", "kind")]


class Workers(Around):
    """Contract of this file: `rhythm` and `trade` say what workers exchange and when.

    workers  how many there are; None: `_count` says
    inner    how the ranks of a worker train together; None: DDP
    wide     the inner strategy where several ranks are a worker and none is said
    """

    own_launches = True
    wide: ClassVar[type[Strategy]] = Ddp

    workers: int | None
    inner: Strategy | None

    @property
    def rhythm(self) -> Rhythm:
        """When fragments leave and have to be there."""
        raise NotImplementedError

    def trade(self, job: Job) -> Trade:
        """What a rank exchanges of one fragment."""
        raise NotImplementedError

    def kept(self, job: Job, parameters: float) -> dict[str, float]:
        """What a rank keeps for the exchange [B]; `parameters` are those that it holds and trains:
        frozen ones are the same on all workers, and nobody exchanges them."""
        raise NotImplementedError

    # -- who is a worker ------------------------------------------------------------------------

    def size(self, job: Job) -> int:
        """Ranks of a worker; a rank alone is one, whatever is said of more.  Refused where the
        ranks do not split so."""
        if job.ranks == 1:
            return 1
        ranks, count = job.ranks, self._count(job)
        if count > ranks or ranks % count:
            message = f"{ranks} ranks do not split into {count} equal workers"
            raise Refused(message, ("strategy", "workers"))
        return ranks // count

    def _count(self, job: Job) -> int:
        """Workers: as many as are said; else the sites, where there are several; else the nodes,
        where an inner strategy is given; else every rank is one."""
        if self.workers is not None:
            return self.workers
        if job.sites:
            return self._of_sites(job)
        if self.inner is None:
            return job.ranks
        return self._of_nodes(job)

    def _of_nodes(self, job: Job) -> int:
        if job.ranks == 1:
            return 1
        if job.local_size is None:
            said = f"which of {job.ranks} ranks train together? Without nodes or sites say how"
            raise Refused(f"{said} many workers there are", ("strategy", "workers"))
        if job.ranks % job.local_size:
            said = f"{job.ranks} ranks do not fill nodes of {job.local_size}, so nodes are no"
            raise Refused(f"{said} equal workers; say how many there are", ("strategy", "workers"))
        return job.ranks // job.local_size

    def _of_sites(self, job: Job) -> int:
        if len(set(job.sites)) > 1:
            sizes = ", ".join(map(str, job.sites))
            said = f"sites of {sizes} ranks are no equal workers; say how many there are"
            raise Refused(said, ("strategy", "workers"))
        return len(job.sites)

    def inner_job(self, job: Job) -> Job:
        """The job of a worker's ranks."""
        size = self.size(job)
        local = None if job.local_size is None else min(job.local_size, size)
        return replace(job, ranks=size, local_size=local, sites=())

    def system(self, job: Job) -> Strategy:
        """How the ranks of a worker train together."""
        return self.within

    @property
    def within(self) -> Strategy:
        return self.inner or self.wide()

    # -- the contract of strategies -------------------------------------------------------------

    def program(self, job: Job, iteration: int | None) -> Program:
        """The mean step of a round; of an iteration, that step."""
        inner, rhythm = self._inner_program(job, iteration), self.rhythm
        if not self.exchanges(job):
            return self.within_workers(inner)
        if iteration is None:
            return mean_step(job, inner, self.trade(job), rhythm)
        if rhythm.fragments > 1 or rhythm.delay:
            message = "first iterations are not modelled where fragments are under way; steady is"
            raise Refused(message, ("iteration",))
        if not self.averages(iteration):
            return self.within_workers(inner)
        return single_step(job, inner, self.trade(job))

    def averages(self, iteration: int) -> bool:
        """Whether workers exchange after `iteration` (1, 2, …)."""
        return iteration % self.rhythm.period == 0

    def _inner_program(self, job: Job, iteration: int | None) -> Program:
        own = self.inner_job(job)
        if own.ranks == 1:
            return ExchangeStep(own, Exchange()).play()
        return self.system(job).program(own, iteration)

    def within_workers(self, inner: Program) -> Program:
        """The program of a worker's ranks, with its groups inside each worker."""
        ops = (op._replace(group=within(op.group)) for op in inner.ops)
        return Program(tuple(ops), inner.buckets)

    def groups_of(self, job: Job) -> dict[str, Partition]:
        """Workers, peers, and the groups inside workers."""
        size, ranks = self.size(job), job.ranks
        found = {WORKER: consecutive(size, ranks), PEERS: strided(size, ranks)}
        if self.rhythm.under_way:
            found[ALONE] = consecutive(1, ranks)
        if size > 1:
            for name, parts in self.system(job).groups_of(self.inner_job(job)).items():
                found[within(name)] = tuple(
                    range(part[0] + at, part[-1] + at + 1, part.step)
                    if isinstance(part, range)
                    else tuple(rank + at for rank in part)
                    for at in range(0, ranks, size)
                    for part in parts
                )
        return found

    def exchanges(self, job: Job) -> bool:
        """Whether there is anybody to exchange with."""
        return job.ranks > self.size(job)

    def rounds(self, job: Job) -> Rhythm | None:
        return self.rhythm if self.exchanges(job) else None

    def folded(self, job: Job) -> Folded:
        """A played step stands for those of a stretch; the ranks of a worker wait for each other
        in each of them."""
        steps = self.rhythm.stretch * (self.rhythm.under_way + 1)
        return Folded(max(round(steps), 1), self.size(job))

    def memory(self, job: Job) -> dict[str, float]:
        """What the inner strategy keeps, and what the exchange needs."""
        parts = self._own_memory(job)
        return {**parts, **self._for_exchange(job, parts)}

    def held(self, job: Job) -> Held:
        """As the inner strategy holds it; what the exchange needs is always there."""
        parts = self._own_memory(job)
        alone = self.inner is None and self.size(job) == 1
        found = constant(parts) if alone else self.system(job).held(self.inner_job(job))
        return replace(found, always={**found.always, **self._for_exchange(job, parts)})

    def _for_exchange(self, job: Job, parts: dict[str, float]) -> dict[str, float]:
        """`kept`, of which what the inner strategy keeps are `parts` [B]: frozen parameters are
        sharded or replicated as trained ones are."""
        trained, whole = (sum(p.bytes for p in of(job)) for of in (gradients_of, parameters_of))
        return self.kept(job, parts["parameters"] * (trained / whole if whole else 1.0))

    def _own_memory(self, job: Job) -> dict[str, float]:
        own = self.inner_job(job)
        if self.inner is None and own.ranks == 1:
            return state_bytes(own, 1.0)
        return self.system(job).memory(own)

    @property
    def sharded(self) -> bool:
        return False

    def __post_init__(self) -> None:
        if isinstance(self.inner, Workers):
            message = f"{name_of(self.inner)} inside {name_of(self)}: workers are split once"
            raise Refused(message, ("inner",))
        if self.inner is not None and self.inner.backup_workers:
            raise Refused("workers wait for all of their ranks", ("inner", "backup_workers"))

    def more_samples(self, job: Job) -> float | None:
        return None if job.ranks > self.size(job) else 1.0

    def notes(self, job: Job) -> tuple[str, ...]:
        """What is known of learning."""
        inner, most = self.system(job).notes(self.inner_job(job)), self.more_samples(job)
        if most == 1.0:
            return inner
        if most is None:
            said = "no published table bounds how many samples more this needs for the same loss"
            return (*inner, f"step time is not time to a loss: {said}")
        said = f"for the same loss this may need up to {most - 1.0:.0%} more samples"
        return (*inner, f"step time is not time to a loss: {said} (arXiv:2501.18512, 2502.12996)")

    # -- sizes ----------------------------------------------------------------------------------

    def share(self, job: Job, width: float | None) -> float:
        """What one rank of a worker exchanges of the parameters [B]: the ranks of a worker share
        them out.  `width` bytes an element; None: as wide as they are stored."""
        found = gradients_of(job)
        each = (g.bytes if width is None else width * g.elements for g in found)
        return float(sum(each)) / self.size(job)

    def replicated(self, job: Job) -> bool:
        """Whether each rank of a worker holds all parameters."""
        if self.size(job) == 1:
            return False
        whole = sum(p.bytes for p in parameters_of(job))
        held = self.system(job).memory(self.inner_job(job))["parameters"]
        return held > 0.75 * whole

    def averaged(self, job: Job, touched: tuple[float, float]) -> Trade:
        """As torch averages: all ranks all-reduce all parameters, those of one worker too; sharded
        ones are averaged shard by shard."""
        if self.size(job) > 1 and not self.replicated(job):
            return self.traded(job, None, touched)
        whole = self.share(job, None) * self.size(job)
        before, after = (Work(times / 2 * whole) for times in touched)
        return Trade(whole, groups=("world",), before=before, after=after)

    def traded(self, job: Job, width: float | None, touched: tuple[float, float]) -> Trade:
        """An all-reduce over the peers; `touched`: how many times the parameters the device reads
        and writes, before it and after."""
        rhythm = self.rhythm
        size = self.share(job, width) / rhythm.fragments
        own = self.share(job, None) / rhythm.fragments
        gathered = size * self.size(job) if self.replicated(job) else 0.0
        before, after = (Work(times / 2 * own) for times in touched)
        return Trade(size, gathered=gathered, before=before, after=after)
