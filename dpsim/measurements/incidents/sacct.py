"""Slurm's accounting: ``sacct --parsable2 --format=JobID,State,Start,End,NNodes``.

States as Slurm has them (slurm.schedmd.com/sacct.html, "JOB STATE CODES"): NODE_FAIL and BOOT_FAIL
are nodes' failures, FAILED and OUT_OF_MEMORY the job's own; PREEMPTED was taken away.  TIMEOUT and
DEADLINE are limits that somebody set, and no failures.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from dpsim.core.record import Refused
from dpsim.core.yamlfile import FileRefused
from dpsim.measurements.incidents.counted import CountedRate, Exposure, Seen, moment, span

_NEEDED = ("JobID", "State", "Start", "End")
_COUNTS = ("NNodes", "AllocNodes", "ReqNodes")
_OF_NODES = ("NODE_FAIL", "BOOT_FAIL")
_OWN = ("FAILED", "OUT_OF_MEMORY")
#: text that stands for no time
_NONE = ("", "Unknown", "None", "N/A")


class _Allocation(NamedTuple):
    """A job that ran: its state, for how long [s], and on how many nodes."""

    state: str
    begin: float
    end: float
    nodes: int


def read(text: str, name: str, observed: Exposure) -> tuple[float, list[CountedRate], Seen]:
    """Time looked at [s], rates of nodes' and jobs' failures, and what else is worth knowing."""
    jobs, left_out = _jobs(text, name)
    if not jobs:
        raise Refused("has no job that started and ended")
    states = Counter(job.state for job in jobs)
    at_work = sum(job.end - job.begin for job in jobs)
    of_nodes = sum((job.end - job.begin) * job.nodes for job in jobs)
    broken = sum(states[state] for state in _OF_NODES)
    own = sum(states[state] for state in _OWN)
    rates = [
        CountedRate("node", broken, "node", of_nodes,
                    {"node": {"mtbf": span(of_nodes / broken)}} if broken else {}),
        CountedRate("software", own, "job", at_work,
                    {"software": {"mtbf": span(at_work / own)}} if own else {}),
    ]  # fmt: skip
    notes = []
    if own:
        notes.append("software counts FAILED and OUT_OF_MEMORY, users' own mistakes among them")
    if states["PREEMPTED"]:
        taken = states["PREEMPTED"]
        rates.append(CountedRate("preempted", taken, "job", at_work))
        notes.append(f"{taken} preemptions are counted and not part of `failures:`")
    if left_out:
        notes.append(f"{left_out:,} jobs that never started or have not ended are left out")
    over = observed.over or max(j.end for j in jobs) - min(j.begin for j in jobs)
    measured = {"jobs": float(len(jobs)), "node_hours": of_nodes / 3600.0}
    return over, rates, Seen(measured, {}, tuple(notes))


def _jobs(text: str, name: str) -> tuple[list[_Allocation], int]:
    """The jobs, without their steps, and how many are left out."""
    lines = text.splitlines()
    columns = lines[0].strip().strip("|").split("|")
    missing = [column for column in _NEEDED if column not in columns]
    counts = next((column for column in _COUNTS if column in columns), None)
    if missing or counts is None:
        wanted = ",".join((*_NEEDED, "NNodes"))
        said = f"lacks {', '.join(missing) or 'NNodes'}; use sacct --parsable2 --format={wanted}"
        raise FileRefused(said, shown=name, line=1)
    found, left_out = list[_Allocation](), 0
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("|")[: len(columns)]
        if not line.strip():
            continue
        if len(cells) < len(columns):
            said = f"has {len(cells)} cells, and the header {len(columns)}"
            raise FileRefused(said, shown=name, line=number)
        row = dict(zip(columns, (cell.strip() for cell in cells), strict=True))
        if "." in row["JobID"]:
            continue
        try:
            job = _job(row, counts)
        except ValueError as error:
            raise FileRefused(str(error), shown=name, line=number) from None
        if job is None:
            left_out += 1
        else:
            found.append(job)
    return found, left_out


def _job(row: dict[str, str], counts: str) -> _Allocation | None:
    """The job of a row; None where it never ran, or still does.  ValueError where the row cannot
    be understood."""
    if row["Start"] in _NONE or row["End"] in _NONE:
        return None
    begin, end = moment(row["Start"]), moment(row["End"])
    if end < begin:
        raise ValueError(f"ends at {row['End']}, before it starts at {row['Start']}")
    if not row[counts].isdecimal():
        raise ValueError(f"{counts}: {row[counts][:20]!r} is not a number of nodes")
    nodes = int(row[counts])
    state = (row["State"].split() or [""])[0]
    return _Allocation(state, begin, end, nodes) if end > begin and nodes else None
