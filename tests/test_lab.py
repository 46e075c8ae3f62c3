"""The lab: what it draws, what it writes, what it leaves behind (nothing).

The runs need root and network namespaces, and are skipped with the reason where there are none.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dpsim

FOLDER = Path(__file__).parent.parent / "validation" / "lab"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The lab's modules, which import each other by their bare names."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import compare
    import draw
    import lab
    import network
    import predict

    return SimpleNamespace(compare=compare, draw=draw, lab=lab, network=network, predict=predict)


@pytest.fixture
def allowed(modules: SimpleNamespace) -> SimpleNamespace:
    """The modules, where this machine lets the lab make its hosts."""
    try:
        modules.network.require()
    except (modules.network.NotAllowed, FileNotFoundError) as error:
        pytest.skip(str(error))
    return modules


# -- drawing ------------------------------------------------------------------------------------


def test_a_seed_and_a_number_make_one_configuration(modules: SimpleNamespace) -> None:
    ranges = modules.draw.Ranges()
    again = modules.draw.draw(5, 17, ranges)
    assert again == modules.draw.draw(5, 17, ranges)
    assert again not in [modules.draw.draw(5, k, ranges) for k in range(17)]
    assert modules.draw.Configuration.read(json.loads(json.dumps(again.data()))) == again


def test_draws_keep_to_their_ranges(modules: SimpleNamespace) -> None:
    drawn = [modules.draw.draw(1, k, modules.draw.Ranges()) for k in range(300)]
    assert {c.hosts for c in drawn} == set(range(2, 9))
    for c in drawn:
        assert 50e6 / 8 <= c.rate <= 400e6 / 8
        assert c.rate * c.hosts <= modules.draw.TOTAL_RATE * 1.001
        assert 3 <= len(c.layers) <= 10
        assert 0.049 <= sum(f + b for _, f, b in c.layers) <= 0.201
        assert all(0 <= who < c.hosts for who in (*c.straggler, *c.slow_link))
        assert all(1.0 <= factor <= 2.0 for factor in c.straggler.values())
        assert all(0.3 <= rate / c.rate <= 0.8 for rate in c.slow_link.values())
    caps = [c.bucket_cap_mb for c in drawn]
    assert 0 < caps.count(None) < 90
    assert all(cap is None or cap > 0 for cap in caps)
    for present in ("straggler", "slow_link", "jitter"):
        assert 0 < sum(bool(getattr(c, present)) for c in drawn) < 300


def test_the_command_line_fixes_what_is_drawn(modules: SimpleNamespace) -> None:
    words = "--hosts 4 --rate 80 --cap default --straggler 1.5 --slow-link none --jitter none"
    ranges = modules.lab.arguments(words.split()).ranges
    for k in range(5):
        c = modules.draw.draw(1, k, ranges)
        assert (c.hosts, c.rate, c.bucket_cap_mb) == (4, pytest.approx(1e7), None)
        assert (list(c.straggler.values()), c.slow_link, c.jitter) == ([1.5], {}, 0.0)


@pytest.mark.parametrize(
    "words", ["--hosts 1-4", "--hosts 9", "--rate 0", "--layers 0.5", "--straggler odd"]
)
def test_what_cannot_be_run_is_refused(
    modules: SimpleNamespace, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        modules.lab.arguments(words.split())
    assert stopped.value.code == 2
    assert words.split()[0] in capsys.readouterr().err


# -- predicting ---------------------------------------------------------------------------------


def test_the_fit_finds_what_made_the_curve(modules: SimpleNamespace) -> None:
    latency, efficiency, rate = 3e-4, 0.9, 12.5e6
    sizes = (*modules.predict.SMALL, *modules.predict.LARGE)
    seconds = {
        str(s): [2 * latency + (s / (efficiency * rate) if s > 5000 else 0.0)] * 3 for s in sizes
    }
    found = modules.predict.fit({"rate": rate, "seconds": seconds})
    assert found == pytest.approx({"latency": latency, "efficiency": efficiency})


def test_a_configuration_becomes_a_scenario(modules: SimpleNamespace, tmp_path: Path) -> None:
    """One layer on two hosts, nothing to overlap: compute of the slower host and the bytes."""
    config = modules.draw.Configuration(
        seed=1, number=0, hosts=2, rate=1e7, layers=((1_000_000, 0.01, 0.02),),
        bucket_cap_mb=1.0, straggler={1: 1.5}, slow_link={0: 5e6},
    )  # fmt: skip
    file = modules.predict.write(tmp_path, config, {"latency": 1e-4, "efficiency": 0.9}, 0.03)
    loaded = dpsim.read(file)
    assert loaded.scenario.cluster.nodes == 2
    expected = 1.5 * 0.03 + 4e6 / (5e6 * 0.9)
    assert modules.predict.step_time(file) == pytest.approx(expected, rel=5e-3)


def test_errors_are_counted_by_what_was_in_the_way(modules: SimpleNamespace) -> None:
    def row(error: float, **what: object) -> object:
        config = modules.draw.Configuration(1, 0, 2, 1e7, (), None, **what)
        return modules.compare.Row(config, 0.1, 0.1 * (1 + error))

    found = modules.compare.summary(
        [row(0.01), row(-0.03), row(0.05, straggler={0: 1.2}), row(-0.2, slow_link={1: 1e6})]
    )
    by_name = {name: (count, middle, worst) for name, count, middle, _, worst in found}
    assert by_name["all"] == pytest.approx((4, 0.04, 0.2))
    assert by_name["neither"] == pytest.approx((2, 0.02, 0.03))
    assert by_name["slow link"] == pytest.approx((1, 0.2, 0.2))
    assert "jitter" not in by_name


# -- running ------------------------------------------------------------------------------------


def test_without_root_it_says_so(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert modules.lab.main(["--configurations", "1"]) == 3
    assert "root" in capsys.readouterr().err


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(FOLDER.parent.parent)}


def of_process(pid: int, modules: SimpleNamespace) -> list[str]:
    """Namespaces that process `pid` made."""
    return [n for n in modules.network.namespaces() if n.split("-")[1] == str(pid)]


def test_a_short_run_writes_all_and_leaves_nothing(
    allowed: SimpleNamespace, tmp_path: Path
) -> None:
    words = "--seed 3 --configurations 1 --hosts 3 --rate 200 --compute 50 --ratio 1 --jitter none"
    command = [sys.executable, str(FOLDER / "lab.py"), *words.split(), "-o", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert of_process(process.pid, allowed) == []
    assert "error of" in out
    record = json.loads((tmp_path / "3-000.json").read_text())
    config = allowed.draw.Configuration.read(record["configuration"])
    assert record["schema"] == allowed.draw.SCHEMA
    steps = np.array(record["seconds"]["ranks"])
    assert steps.shape == (3, config.steps)
    # sleeps are no shorter than asked for, and bytes no faster than the links
    compute = sum(f + b for _, f, b in config.layers)
    slowest = max(config.straggler.values(), default=1.0)
    link = min(config.slow_link.values(), default=config.rate)
    moved = 4 / 3 * 4 * sum(n for n, _, _ in config.layers) / link
    assert steps.mean() >= max(compute * slowest, 0.95 * moved)
    assert min(record["seconds"]["single"]) >= compute * config.straggler.get(0, 1.0)
    assert dpsim.read(tmp_path / "3-000.yaml").scenario.cluster.nodes == 3


def until(happened: Callable[[], bool]) -> bool:
    """Whether it happened within half a minute."""
    end = time.monotonic() + 30
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


def test_nothing_outlives_a_killed_run(allowed: SimpleNamespace, tmp_path: Path) -> None:
    network = allowed.network
    command = [sys.executable, str(FOLDER / "lab.py"), "--hosts", "2", "-o", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    ) as process:
        hosts: list[str] = []

        def started() -> bool:
            names = [n for n in of_process(process.pid, allowed) if n[-2:] in ("h0", "h1")]
            try:
                hosts[:] = [p for n in names for p in network.run("ip", "netns", "pids", n).split()]
            except subprocess.CalledProcessError:  # the probe's own host, gone in between
                return False
            return len(hosts) == 2

        assert until(started)
        os.kill(process.pid, signal.SIGKILL)
    left = of_process(process.pid, allowed)
    assert len(left) == 3  # two hosts and the switch
    with network.Switch(1) as other:
        removed = network.clean()
        assert set(left) <= set(removed)
        assert other.name(0) in network.namespaces()  # a run that is alive is left alone
    assert of_process(process.pid, allowed) == []
    assert until(lambda: not any(network.identity(int(pid)) for pid in hosts))


def test_killed_ranks_come_out_as_dpsim_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty histories of real ranks under torchrun, of which nothing is used but when they were
    killed; what was measured once is another run's."""
    monkeypatch.syspath_prepend(str(FOLDER / "kills"))
    import kills

    record = json.loads((FOLDER / "results" / "kills-90417.json").read_text())
    assert len(record["histories"]) == 20
    for one in record["histories"]:
        gaps = one["gaps"][: len(one["gaps"]) - 1]
        assert times_of_gaps(kills, one) == pytest.approx(gaps, abs=0.5)
    assert kills.compare(record, None) < kills.ALLOWED


def times_of_gaps(kills: object, record: dict[str, object]) -> list[float]:
    """Seconds from beginning to work to each kill."""
    ready = kills.times(record, "ready")  # type: ignore[attr-defined]
    found = kills.times(record, "kill")  # type: ignore[attr-defined]
    return [kill - max(at for at in ready if at < kill) for kill in found]
