"""A table of incidents: a row each, with `time` and `cause`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from dpsim.core import csvfile
from dpsim.core.record import Refused
from dpsim.core.yamlfile import FileRefused
from dpsim.measurements.incidents.counted import CountedRate, Exposure, Seen, moment, span

#: causes that stop a job whose nodes are well, and that it has one of
_OF_THE_JOB = ("storage", "software")


def read(text: str, name: str, observed: Exposure) -> tuple[float, list[CountedRate], Seen]:
    """Time looked at [s], rates by cause, and what else is worth knowing."""
    rows = csvfile.table(text, name)
    for column in ("time", "cause"):
        if column not in rows.columns:
            raise rows.refusal(f"has no column {column!r}; an incident has a time and a cause")
    times, causes = [], Counter[str]()
    for row in rows:
        try:
            times.append(moment(row.get("time")))
        except ValueError as error:
            raise row.refusal(str(error), "time") from None
        if not row.get("cause"):
            raise row.refusal("is empty; write gpu, node, software or any other name", "cause")
        causes[row.get("cause").lower()] += 1
    if not times:
        raise rows.refusal("has no incident", None)
    over, notes = _over(times, observed, name)
    rates = [_rate(cause, count, over, observed) for cause, count in causes.items()]
    rest = sum(rate.count for rate in rates if not rate.section)
    if rest and observed.devices:
        whole = {"count": rest, "over": span(over), "devices": observed.devices}
        others = {"interruptions": whole}
        rates = [rate if rate.section else replace(rate, section=others) for rate in rates]
    elif rest:
        gone = ", ".join(rate.cause for rate in rates if not rate.section)
        notes.append(f"left out of the scenario's section: {gone} ({rest:,} of {len(times):,} "
                     "incidents); their rates are of the whole job, and give --devices (for host "
                     "and node --nodes) to have them there")  # fmt: skip
    return over, rates, Seen(notes=tuple(notes))


def _over(times: list[float], observed: Exposure, name: str) -> tuple[float, list[str]]:
    between = max(times) - min(times)
    if observed.over is not None:
        if observed.over < between:
            said = (
                f"the incidents lie {span(between)} apart, more than --over {span(observed.over)}"
            )
            raise FileRefused(said, shown=name)
        return observed.over, []
    if between <= 0.0:
        raise Refused("has incidents at one time only; say with --over for how long it looked")
    said = "without --over the time looked at is that from the first incident to the last, " \
           "which makes rates a little too high"  # fmt: skip
    return between, [said]


def _rate(cause: str, count: int, over: float, observed: Exposure) -> CountedRate:
    """The rate of one cause, of one of what it is of."""
    many = {"gpu": observed.devices, "host": observed.nodes, "node": observed.nodes}.get(cause)
    if cause in _OF_THE_JOB:
        return CountedRate(cause, count, "job", over, {cause: {"mtbf": span(over / count)}})
    if many is None:
        return CountedRate(cause, count, "job", over)
    of = "device" if cause == "gpu" else "node"
    return CountedRate(cause, count, of, over * many, {cause: {"mtbf": span(over * many / count)}})
