"""Keys of a recovery that change nothing in the job that a scenario describes."""

from __future__ import annotations

from collections.abc import Iterator

from dpsim.cases.case import Case
from dpsim.life.recoveries import Recovery, Repair, Spares


def idle_keys(case: Case) -> Iterator[str]:
    """A warning for each key of `case`'s recovery that changes nothing, or hardly anything."""
    failures, recovery = case.scenario.failures, case.scenario.recovery
    if failures is None or recovery is None:
        return
    if recovery.spares:
        yield from _spares(recovery.spares)
    if recovery.repair:
        yield from _repair(recovery.repair, failures.bad is not None)
    yield from _own(recovery, case.nodes or case.ranks)


def _spares(spares: Spares) -> Iterator[str]:
    if spares.provision and not spares.cold:
        yield "recovery.spares.provision changes nothing: there are no cold nodes"
    if spares.fetched == "one_by_one" and not spares.cold:
        yield (
            "recovery.spares.fetched: one_by_one fetches nothing: there are no cold nodes; the job "
            "still waits until repair has made its warm nodes complete"
        )


def _repair(repair: Repair, bad: bool) -> Iterator[str]:
    for key in ("automatic_fails", "manual_fails"):
        if getattr(repair, key) and not bad:
            yield f"recovery.repair.{key} changes nothing: no nodes are bad (failures.bad)"
    if (repair.manual or repair.manual_fails) and not repair.escalates:
        yield "recovery.repair.manual changes nothing: no repair needs people (escalates: 0)"
    if repair.technicians and not (repair.escalates and repair.manual):
        said = "no repair needs people (manual, escalates)"
        yield f"recovery.repair.technicians changes nothing: {said}"
    if repair.escalates and not repair.manual:
        yield "recovery.repair.escalates takes no time: manual is 0"


def _own(recovery: Recovery, nodes: int) -> Iterator[str]:
    """What single kinds of recoveries leave unused."""
    fewest = getattr(recovery, "fewest", None) or 0
    if fewest > nodes:
        yield (
            f"recovery.fewest: {fewest:,} is taken as {nodes:,}, all nodes that the job has: it "
            "never goes on with fewer"
        )
    for key in recovery.rarely():
        if getattr(recovery, key) != getattr(type(recovery), key):
            yield f"recovery.{key} passes only where nobody with the job's state is left"
