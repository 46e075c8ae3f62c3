"""The comparison of concurrent jobs plays what two numbers and a division say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "validation"))

import contention
from contention import Row

FLOW, LINK = 6e8, 1e9


@pytest.mark.parametrize("jobs", [1, 2, 5, 8])
@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_jobs_are_paced_by_their_flows_or_by_the_link(jobs: int, nodes: int) -> None:
    row = Row(nodes, jobs, 1e8, 0.0)
    wanted = max(1e8 / FLOW, jobs * 1e8 / LINK)
    assert contention.predict(row, FLOW, LINK) == pytest.approx(wanted, rel=1e-9)


def test_a_table_made_of_the_two_numbers_gives_them_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["nodes,concurrent_jobs,size_bytes,avg_latency_us"]
    for nodes in (2, 4):
        for jobs in (1, 4, 8):
            payload = 2 * (nodes - 1) / nodes * 1e8
            lines.append(f"{nodes},{jobs},1e8,{max(payload / FLOW, jobs * payload / LINK) * 1e6}")
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    assert contention.fit(contention.read(tmp_path / "t.csv")) == pytest.approx((FLOW, LINK))
    assert contention.main([str(tmp_path / "t.csv")]) == 0
    assert "held out: n = 2, median |error| 0.0%" in capsys.readouterr().out
