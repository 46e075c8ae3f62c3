"""`dpsim incidents`: what interrupted real jobs, as a scenario takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from dpsim.core.poisson import interval
from dpsim.core.record import build
from dpsim.core.yamlfile import FileRefused
from dpsim.life.failures import Failures, Inventory, hazards
from dpsim.measurements.incidents import Incidents, read
from dpsim.measurements.incidents.counted import Exposure

DAY = 86400.0
TABLE = """time,cause
2026-01-01T00:00:00,gpu
2026-01-04T05:00:00,GPU
2026-01-09T07:00:00Z,nic
1768089600,software
"""
SACCT = """JobID|State|Start|End|NNodes|
12|COMPLETED|2026-01-01T00:00:00|2026-01-02T00:00:00|16|
12.batch|COMPLETED|2026-01-01T00:00:00|2026-01-02T00:00:00|1|
13|NODE_FAIL|2026-01-02T00:00:00|2026-01-05T00:00:00|16|
14|CANCELLED by 1000|2026-01-05T00:00:00|2026-01-06T00:00:00|16|
15|PENDING|Unknown|Unknown|16|
16|OUT_OF_MEMORY|2026-01-06T00:00:00|2026-01-07T00:00:00|8|
17|PREEMPTED|2026-01-06T00:00:00|2026-01-07T00:00:00|8|
"""


def found(tmp_path: Path, text: str, **observed: Any) -> Incidents:
    path = tmp_path / "file.txt"
    path.write_text(text)
    return read(path, Exposure(**observed))


def log(**changes: Any) -> str:
    """Three lives of ten steps of 5 s; each starts 60 s before its first step and 300 s after the
    end of the one before, and does three steps again."""
    entries: list[dict[str, Any]] = []
    time, step = 1000.0, 0
    for _ in range(3):
        entries.append({"job_name": "a", "job_start_time": time})
        time += 60
        for _ in range(10):
            entries.append({"job_name": "a", "step_count": step, "step_start_time": time})
            time, step = time + 5, step + 1
        time, step = time + 300, step - 3
    entries.append({"job_name": "a", "job_end_time": time - 300} | changes)
    return "\n".join(json.dumps(entry) for entry in entries)


@pytest.mark.parametrize("count", [0, 1, 3, 40, 419, 9_999, 20_000])
def test_the_interval_of_a_count_is_that_of_a_poisson_mean(count: int) -> None:
    low, high = interval(count)
    exact = stats.chi2.ppf(0.05, 2 * count) / 2 if count else 0.0
    assert low == pytest.approx(exact, rel=1e-3 if count > 10_000 else 1e-9)
    assert high == pytest.approx(stats.chi2.ppf(0.95, 2 * count + 2) / 2,
                                 rel=1e-3 if count > 10_000 else 1e-9)  # fmt: skip


def test_a_table_counts_by_cause_and_its_sections_are_a_scenarios(tmp_path: Path) -> None:
    """What the sections say, played in a job of that size, breaks as often as was counted."""
    told = found(tmp_path, TABLE, over=30 * DAY, nodes=16, devices=128)
    assert {rate.cause: rate.count for rate in told.rates} == {"gpu": 2, "nic": 1, "software": 1}
    failures = build(Failures, told.sections["failures"], file=True)
    rates = [one.rate for one in hazards(failures, Inventory(16, 128, 128, 1))]
    assert sum(rates) * 30 * DAY == pytest.approx(4, rel=1e-5)


def test_without_numbers_of_devices_only_the_jobs_own_causes_are_sections(tmp_path: Path) -> None:
    told = found(tmp_path, TABLE)
    assert list(told.sections["failures"]) == ["software"]
    assert any("--over" in note for note in told.seen.notes)
    assert any("section: gpu, nic (3 of 4 incidents)" in note and "--devices" in note
               for note in told.seen.notes)  # fmt: skip


def test_slurms_accounting_counts_node_failures_over_node_time(tmp_path: Path) -> None:
    """Steps of jobs and jobs that never ran do not count; what was preempted is told apart."""
    told = found(tmp_path, SACCT)
    rates = {rate.cause: rate for rate in told.rates}
    assert rates["node"].mtbf == pytest.approx((16 + 48 + 16 + 8 + 8) * DAY)
    assert rates["software"].mtbf == pytest.approx(7 * DAY)
    assert rates["preempted"].count == 1
    assert "preempted" not in str(told.sections)
    assert all(rate.thin for rate in told.rates)


@pytest.mark.parametrize("limit", ["TIMEOUT", "DEADLINE"])
def test_a_limit_that_somebody_set_is_no_failure(tmp_path: Path, limit: str) -> None:
    told = found(tmp_path, SACCT.replace("OUT_OF_MEMORY", limit))
    assert {rate.cause: rate.count for rate in told.rates}["software"] == 0


def test_the_log_of_ml_goodput_measurement_tells_restarts(tmp_path: Path) -> None:
    told = found(tmp_path, log(), devices=256)
    measured = told.seen.measured
    assert (measured["startup_s"], measured["detection_s"], measured["step_s"]) == (60, 300, 5)
    assert measured["steps_done_twice"] == 6
    assert told.over == 930.0
    assert measured["goodput"] == pytest.approx(24 * 5 / 930)
    assert told.sections["failures"] == {
        "interruptions": {"count": 2, "over": "930 s", "devices": 256}
    }
    listed = json.dumps([{"jsonPayload": json.loads(line)} for line in log().splitlines()])
    assert found(tmp_path, listed, devices=256).document() == told.document()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,what\n1,gpu\n", "has no column 'cause'"),
        ("time,cause\nyesterday,gpu\n", "2: time: 'yesterday' is no time"),
        ("time,cause\n5,gpu\n1e300,gpu\n", "3: time: '1e300' is not in the years 1970 to 2099"),
        ("time,cause\n2999-01-01T00:00:00,gpu\n", "2: time: '2999-01-01T00:00:00' is not in the"),
        ("time,cause\n-5,\n", "2: time: '-5' is not in the years"),
        ("time,cause\nnan,\n", "2: time: 'nan' is not in the years"),
        ("time,cause\n5,\n", "2: cause: is empty"),
        ("time,cause\n5,gpu\n5,nic\n", "say with --over"),
        ("JobID|State|Start\n1|FAILED|x\n", "lacks End; use sacct --parsable2"),
        (SACCT.replace("2026-01-05T00:00:00|16|\n14", "2025-01-05T00:00:00|16|\n14"),
         "4: ends at 2025-01-05T00:00:00, before it starts"),
        (SACCT.splitlines()[0], "no job that started and ended"),
        ("{}\n", "has no job_start_time"),
        ('{"job_start_time": 5}\n{"job_end_time": 1e999}', "2: "),
        ('{"step_start_time": 5, "step_count": 0}', "before any job_start_time"),
        ("[3]", "an entry that is no object"),
        ("", "is empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused_where_it_stands(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(FileRefused) as refused:
        found(tmp_path, text)
    assert message in str(refused.value)


def test_less_time_than_lies_between_incidents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="more than --over 1 d"):
        found(tmp_path, TABLE, over=DAY)
