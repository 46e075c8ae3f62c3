"""`dpsim check-nccl`: the rule on bands, faults that explain a curve, exit codes."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from dpsim.backends.curves import bus_factor
from dpsim.backends.nccl import Nccl
from dpsim.checks.check_nccl import check
from dpsim.checks.collective import sizes
from dpsim.checks.diagnosis import MARGIN, MeasuredSize, bands, misfit, overall, sensitivity
from dpsim.checks.faults import faults
from dpsim.checks.plateau import plateau_of
from dpsim.machines.machine import load_machine
from dpsim.predict.collective import Line, Setup

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data" / "calibration"
MIB = 2**20

Cli = Callable[..., tuple[int, str, str]]


def text_of(lines: Sequence[Line], nodes: int, factor: float) -> str:
    """What nccl-tests would print if every line took `factor` times as long."""
    ranks = lines[0].ranks
    head = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    operation, redop = lines[0].operation, "none" if lines[0].operation == "send" else "sum"
    rows = [
        f"#  Rank {r:2d} Group  0 Pid {100 + r} on node{r * nodes // ranks} device  {r % 8} "
        "[0000:19:00] NVIDIA H100 80GB HBM3"
        for r in range(ranks)
    ]
    rows += [head + "     time   algbw   busbw #wrong"]
    busy = []
    for line in lines:
        time = line.seconds * factor
        algorithm = line.size / time / 1e9
        busy.append(algorithm * bus_factor(line.operation, ranks))
        one = f"{time * 1e6:12.4f} {algorithm:9.4f} {busy[-1]:9.4f} 0"
        rows.append(f"{line.size:.0f} {line.size // 4:.0f} float {redop} -1 {one} {one}")
    rows.append(f"# Avg bus bandwidth    : {sum(busy) / len(busy):.4f}")
    program = "sendrecv" if operation == "send" else operation
    head = f"# Collective test starting: {program}_perf\n# Using devices\n"
    return head + "\n".join(rows) + "\n"


def made_up(
    folder: Path, factor: float = 1.0, *, nodes: int = 1, fault: str = "", machine: str = "dgx-h100"
) -> str:
    """The path of a file as the machine, or the machine with a fault, would give it."""
    setup = Setup(load_machine(machine), Nccl())
    if fault:
        setup = next(f.setup for f in faults(setup, nodes, 8) if f.name == fault)
    group = setup.group("all_reduce", 8 * nodes, nodes, sizes("1KiB:4GiB", 4))
    path = folder / "measured.txt"
    path.write_text(text_of(group.lines, nodes, factor), encoding="utf-8")
    return str(path)


# -- what is no speed -----------------------------------------------------------------------------


def test_wrong_results_are_suspicious_however_quick(tmp_path: Path) -> None:
    path = Path(made_up(tmp_path))
    setup = Setup(load_machine("dgx-h100"), Nccl())
    assert check(path, setup).verdict == "normal"
    path.write_text(path.read_text().replace(" 0\n", " 7\n", 3))
    found = check(path, setup)
    assert (found.verdict, found.wrong) == ("suspicious", 3)
    assert "ECC" in found.next[0]


def test_another_accelerator_than_the_machines_is_told(tmp_path: Path) -> None:
    path = Path(made_up(tmp_path))
    assert not check(path, Setup(load_machine("dgx-h100"), Nccl())).warnings
    other = check(path, Setup(load_machine("dgx-a100"), Nccl()))
    assert "names NVIDIA H100 80GB HBM3, and dgx-a100 has A100" in other.warnings[-1]


# -- the rule -------------------------------------------------------------------------------------


def test_a_band_is_low_or_suspicious_only_beyond_the_margin() -> None:
    def verdict(measured: float) -> str:
        return overall(bands([MeasuredSize(1024, measured, 10.0, 8.0, 15.0)] * 3, "pcie"))

    assert verdict(10.0) == "normal"
    assert verdict(15.0 * MARGIN * 0.999) == "normal"
    assert verdict(15.0 * MARGIN * 1.001) == "low"
    assert verdict(8.0 / MARGIN * 1.001) == "normal"
    assert verdict(8.0 / MARGIN * 0.999) == "suspicious"


def test_a_few_slow_rows_make_no_low_band() -> None:
    fine, slow = (
        MeasuredSize(1024, 10.0, 10.0, 8.0, 15.0),
        MeasuredSize(1024, 90.0, 10.0, 8.0, 15.0),
    )
    assert overall(bands([fine] * 2 + [slow] * 8, "pcie")) == "normal"
    assert overall(bands([fine] * 1 + [slow] * 9, "pcie")) == "low"


def test_what_the_rule_can_see_is_where_it_turns() -> None:
    for kind in ("nvswitch", "infiniband", "made_up"):
        seen = sensitivity(kind)
        for ratio, said in ((seen.doubtful, "cannot_tell"), (seen.low, "low")):
            for factor, expected in ((1.001, said), (0.999, None)):
                large = MeasuredSize(64 * MIB, 10.0 * ratio * factor, 10.0, 0.1, 1000.0)
                assert (overall(bands([large] * 2, kind)) == said) == (expected == said)


@pytest.mark.parametrize(
    ("kind", "ratio", "verdict"),
    [
        ("infiniband", 2.6, "low"),  # whatever intervals of the fabric say
        ("nvswitch", 2.3, "low"),
        ("pcie", 2.3, "low"),
        ("infiniband", 1.0, "normal"),
        ("infiniband", 1.25, "normal"),
        ("infiniband", 1.4, "cannot_tell"),
        ("infiniband", 1.8, "low"),  # what half of line rate is
        ("infiniband", 0.4, "suspicious"),
        ("efa", 2.3, "cannot_tell"),  # one healthy machine of two takes nearly twice as long
        ("made_up", 2.3, "cannot_tell"),  # nobody published one
        ("made_up", 4.0, "low"),
    ],
)
def test_large_sizes_are_judged_by_healthy_machines_of_that_kind(
    kind: str, ratio: float, verdict: str
) -> None:
    """Not by the width of the interval, and one row is enough; small sizes have no plateau."""
    wide = MeasuredSize(64 * MIB, 10.0 * ratio, 10.0, 0.1, 1000.0)
    for rows in (1, 2, 8):
        assert overall(bands([wide] * rows, kind)) == verdict
    assert overall(bands([wide._replace(size=1024)] * 2, kind)) == "normal"


def test_plateaus_of_healthy_machines_have_a_source() -> None:
    """Mean and spread of ln(measured / predicted); the faulty published series are far beyond."""
    for kind in ("infiniband", "nvswitch", "pcie", "roce", "efa", "gvnic"):
        found = plateau_of(kind)
        assert found.machines >= 1
        assert 0.1 < found.doubtful < found.faulty < 1.6
        assert found.away(math.exp(found.middle)) == pytest.approx(0)
    pcie, roce = plateau_of("pcie"), plateau_of("roce")
    assert pcie.away(3.8) > pcie.faulty  # AIConfigurator's L40S without peer-to-peer
    assert roce.away(3.08) > roce.faulty  # one NIC of a Mass Open Cloud pair


def test_few_machines_of_a_kind_have_heavier_tails_than_many() -> None:
    """Student's t: what 99 of 100 stay below over what 19 of 20 do, 1.41 of a normal distribution
    and 1.93 of t with 3 degrees of freedom, which is what a kind that nobody published has."""
    tails = {kind: (p := plateau_of(kind)).faulty / p.doubtful for kind in ("nvswitch", "efa", "?")}
    assert 1.41 < tails["nvswitch"] < tails["efa"] < tails["?"] == pytest.approx(1.93, abs=0.01)


def test_low_outweighs_suspicious_and_each_band_stands_alone() -> None:
    fast = MeasuredSize(1024, 1.0, 10.0, 8.0, 15.0)
    slow = MeasuredSize(2 * MIB, 90.0, 10.0, 8.0, 15.0)
    fine = MeasuredSize(64 * 1024, 10.0, 10.0, 8.0, 15.0)
    found = bands([slow, fast, fine], "pcie")
    assert [(b.name, b.verdict) for b in found] == [
        ("< 32 KiB", "suspicious"), ("32 KiB-1 MiB", "normal"), ("1-64 MiB", "low"),
    ]  # fmt: skip
    assert overall(found) == "low"
    assert overall(found[:2]) == "suspicious"


def test_a_constant_factor_is_its_own_misfit() -> None:
    assert misfit([2.0, 4.0], [2.0, 4.0]) == 0
    assert misfit([2.0, 4.0], [1.0, 2.0]) == pytest.approx(math.log(2))
    assert misfit([1.0, 2.0], [2.0, 4.0]) == pytest.approx(math.log(2))


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "nodes"),
    [
        ("sockets", 2), ("sockets_on_one_nic", 4), ("one_nic", 4), ("no_nvlink", 1),
        ("no_peer_to_peer", 1),
    ],
)  # fmt: skip
def test_a_predicted_fault_is_found_again(cli: Cli, tmp_path: Path, fault: str, nodes: int) -> None:
    path = made_up(tmp_path, fault=fault, nodes=nodes)
    code, out, _ = cli("check-nccl", path, "--cluster", "dgx-h100", "--json")
    assert code == 1
    (table,) = json.loads(out)["tables"]
    assert table["causes"][0]["name"] == fault
    assert table["causes"][0]["misfit"] < 1e-3
    assert table["causes"][0]["likeliest"]


def test_every_fault_slows_the_largest_size() -> None:
    setup = Setup(load_machine("dgx-h100"), Nccl())
    healthy = setup.group("all_reduce", 32, 4, [4096 * MIB]).lines[0].seconds
    found = {f.name: f.setup for f in faults(setup, 4, 8)}
    assert set(found) == {
        "sockets", "sockets_on_one_nic", "one_nic", "half_of_the_nics", "quarter_of_the_nics",
        "no_nvlink",
        "no_peer_to_peer",
    }  # fmt: skip
    for name, ill in found.items():
        assert ill.group("all_reduce", 32, 4, [4096 * MIB]).lines[0].seconds > healthy, name


def test_a_machine_has_only_the_faults_that_it_can_have() -> None:
    def names(machine: str, nodes: int, per_node: int) -> set[str]:
        setup = Setup(load_machine(machine), Nccl())
        return {fault.name for fault in faults(setup, nodes, per_node)}

    assert names("dgx-h100", 1, 8) == {"no_nvlink", "no_peer_to_peer"}
    assert "sockets" not in names("rack-10gbe", 2, 1)
    assert "no_nvlink" not in names("l40s-8", 1, 8)
    assert names("rtx4090-8", 1, 8) == set(), "its copies are staged already"


# -- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "code", "verdict"), [(1.0, 0, "normal"), (4.0, 1, "low"), (0.1, 1, "suspicious")]
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_curve_is_normal_low_or_suspicious(
    cli: Cli, tmp_path: Path, factor: float, code: int, verdict: str, nodes: int
) -> None:
    path = made_up(tmp_path, factor, nodes=nodes)
    done, out, err = cli("check-nccl", path, "--cluster", "dgx-h100", "--json")
    assert (done, err) == (code, "")
    document = json.loads(out)
    assert document["verdict"] == verdict
    assert document["tables"][0]["nodes"] == nodes
    for band in document["tables"][0]["bands"]:
        assert band["ratio"] == pytest.approx(factor, rel=1e-3)
    assert bool(document["next"]) == (verdict != "normal")


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "normal"), (3.2, "low")])
def test_one_large_row_is_judged_as_several_are(
    tmp_path: Path, factor: float, verdict: str
) -> None:
    """As `-b 10G -e 10G` prints: two nodes at 57 GB/s where 183 are expected are not normal."""
    setup = Setup(load_machine("dgx-a100"), Nccl())
    group = setup.group("all_reduce", 16, 2, [10 * 1024 * MIB])
    path = tmp_path / "one.txt"
    path.write_text(text_of(group.lines, 2, factor), encoding="utf-8")
    found = check(path, setup)
    assert found.verdict == verdict
    assert found.tables[0].sensitivity is not None


@pytest.mark.parametrize(
    ("name", "machine", "code"),
    [
        ("new-layout-gh200-8gpu-allreduce-starting-line.txt", "gh200-4", 0),
        ("new-layout-gh200-8gpu-allreduce-slow-network.txt", "gh200-4", 1),
        ("old-layout-a100-8gpu-allreduce.log", "dgx-a100", 0),
        ("old-layout-a100-8gpu-alltoall.log", "dgx-a100", 0),
        ("new-layout-h100-8gpu-allreduce-nccl-tests-extra-header.txt", "dgx-h100", 0),
    ],
)
def test_real_files(cli: Cli, name: str, machine: str, code: int) -> None:
    assert cli("check-nccl", str(DATA / name), "--cluster", machine)[0] == code


def test_json_is_judged_as_text_is(cli: Cli) -> None:
    path = ROOT / "tests" / "data" / "files" / "nccl-tests.json"
    code, out, _ = cli("check-nccl", str(path), "--cluster", "dgx-h100", "--json")
    (table,) = json.loads(out)["tables"]
    assert (table["operation"], table["ranks"], table["nodes"]) == ("all_reduce", 4, 2)
    assert [line["measured_s"] for line in table["lines"]] == pytest.approx([60.5e-6, 141e-6])
    assert code == 0


@pytest.mark.parametrize("wrong", [5, "5"])
@pytest.mark.parametrize("place", ["in_place", "out_of_place"])
def test_wrong_results_in_json_are_suspicious(
    cli: Cli, tmp_path: Path, place: str, wrong: int | str
) -> None:
    told = json.loads((ROOT / "tests" / "data" / "files" / "nccl-tests.json").read_text())
    for row in told["results"]:
        row[place]["nwrong"] = wrong
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(told))
    code, out, _ = cli("check-nccl", str(path), "--cluster", "dgx-h100")
    assert code == 1
    assert "have wrong results" in " ".join(out.split())


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "normal"), (4.0, "low")])
@pytest.mark.parametrize("redop", ["none", "sum"])  # what versions of it print
def test_sends_to_the_next_rank_are_judged(
    tmp_path: Path, factor: float, verdict: str, redop: str
) -> None:
    """sendrecv_perf: bus bandwidth is algorithm bandwidth, whatever the number of ranks."""
    setup = Setup(load_machine("dgx-h100"), Nccl())
    group = setup.group("send", 16, 2, sizes("64MiB:4GiB"))
    path = tmp_path / "sent.txt"
    path.write_text(text_of(group.lines, 2, factor).replace(" none ", f" {redop} "))
    found = check(path, setup)
    (judged,) = found.tables
    assert (judged.operation, judged.group.ranks, judged.group.nodes) == ("send", 16, 2)
    assert found.verdict == verdict


def test_a_damaged_list_of_ranks_is_overridden(cli: Cli, tmp_path: Path) -> None:
    """Output of several processes overwrites lines, so that 15 of 16 ranks are listed."""
    path = Path(made_up(tmp_path, nodes=2))
    path.write_text(re.sub(r"#  Rank  3 .*\n", "", path.read_text()))
    asked = ("check-nccl", str(path), "--cluster", "dgx-h100", "--json")
    code, out, err = cli(*asked)
    assert (code, out) == (2, "")
    assert "lists 15 ranks, but its bus bandwidth is that of 16; say --ranks" in err
    code, out, _ = cli(*asked, "--ranks", "16", "--nodes", "2")
    (table,) = json.loads(out)["tables"]
    assert (code, table["ranks"], table["nodes"]) == (0, 16, 2)
    code, _, err = cli(*asked, "--ranks", "15", "--nodes", "3")
    assert code == 2
    assert "its bus bandwidth is that of 16 ranks, not 15" in err


def test_a_whole_list_of_ranks_is_not_overridden(cli: Cli, tmp_path: Path) -> None:
    asked = ("check-nccl", made_up(tmp_path, nodes=2), "--cluster", "dgx-h100")
    code, _, err = cli(*asked, "--nodes", "4")
    assert code == 2
    assert "says nodes 2, not 4" in err


def test_a_file_without_a_row_of_the_links_says_so(cli: Cli, tmp_path: Path) -> None:
    text = (DATA / "old-layout-a100-8gpu-allreduce.log").read_text().splitlines(True)
    path = tmp_path / "small.log"
    small = (line for line in text if " float " not in line or int(line.split()[0]) <= 64 << 10)
    path.write_text("".join(small))
    code, _, err = cli("check-nccl", str(path), "--cluster", "dgx-a100")
    assert code == 2
    assert "no curve of a collective; " in err
    assert "one thread issues to 8 GPUs" in err


def test_a_switched_off_network_plugin_looks_like_sockets(cli: Cli) -> None:
    """The file was measured with the plugin for the fabric disabled, so NCCL used sockets."""
    path = DATA / "new-layout-gh200-8gpu-allreduce-slow-network.txt"
    _, out, _ = cli("check-nccl", str(path), "--cluster", "gh200-4", "--json")
    causes = json.loads(out)["tables"][0]["causes"]
    assert "sockets_on_one_nic" in [cause["name"] for cause in causes if cause["likeliest"]]


def test_repetitions_are_one_table(cli: Cli) -> None:
    """The file holds five runs of one test on four nodes over TCP."""
    path = DATA / "new-layout-gke-v100-4node-repeat.out"
    code, out, _ = cli("check-nccl", str(path), "--cluster", "v100-1x100g", "--json")
    (table,) = json.loads(out)["tables"]
    assert code == 1, "virtual machines over TCP are no servers with InfiniBand"
    assert len(table["lines"]) == len({line["size_bytes"] for line in table["lines"]})
    assert table["causes"][0]["name"] == "sockets"


def test_text_says_the_verdict_the_causes_and_what_to_run_next(cli: Cli, tmp_path: Path) -> None:
    path = made_up(tmp_path, fault="one_nic", nodes=4)
    _, out, _ = cli("check-nccl", path, "--cluster", "dgx-h100")
    assert "one NIC a node in use instead of 8" in out
    for words in ("Run next", "NCCL_DEBUG=INFO", "ib_write_bw", "nvidia-smi topo -m", "low:"):
        assert words in out


# -- what is said ---------------------------------------------------------------------------------


def slowed(folder: Path, factor: Callable[[float], float], nodes: int = 1) -> str:
    """The path of a file of dgx-h100 whose sizes take `factor` of them times as long."""
    setup = Setup(load_machine("dgx-h100"), Nccl())
    group = setup.group("all_reduce", 8 * nodes, nodes, sizes("1KiB:4GiB"))
    lines = [replace(line, seconds=line.seconds * factor(line.size)) for line in group.lines]
    path = folder / "slowed.txt"
    path.write_text(text_of(lines, nodes, 1.0), encoding="utf-8")
    return str(path)


def said(cli: Cli, path: str, *more: str) -> tuple[int, str]:
    """Exit code, and what is said on one line."""
    code, out, _ = cli("check-nccl", path, "--cluster", "dgx-h100", *more)
    return code, " ".join(out.split())


@pytest.mark.parametrize(
    ("factor", "verdict", "median", "largest"),
    [
        (lambda size: 1.6 if size > 2048 * MIB else 1.0, "normal", "1.00", "by itself it is low"),
        (lambda size: 1.9 if 64 * MIB <= size <= 2048 * MIB else 1.0, "low", "1.90",
         "by itself it is normal"),
    ],
)  # fmt: skip
def test_what_is_told_of_large_sizes_is_what_is_judged_of_them(
    cli: Cli, tmp_path: Path, factor: Callable[[float], float], verdict: str, median: str,
    largest: str,
) -> None:  # fmt: skip
    """The median row is told with its size, and the largest one where it would be judged apart."""
    code, told = said(cli, slowed(tmp_path, factor))
    assert code == (verdict == "low")
    assert f">= 64 MiB, {verdict}: the median row takes {median} times the expected time" in told
    row = re.search(r"The median row, (\S+ \wiB): ([\d.,]+) GB/s of bus bandwidth measured, "
                    r"([\d.,]+) expected, normal down to ([\d.,]+), low below", told)  # fmt: skip
    assert row is not None
    measured, expected, least = (float(text.replace(",", "")) for text in row.groups()[1:])
    assert expected / measured == pytest.approx(float(median), rel=0.01)
    assert (measured >= least) == (verdict == "normal")
    assert "The largest size, 4 GiB: " in told
    assert largest in told


def at_rates(folder: Path, rates: dict[int, float]) -> str:
    """The path of a file of two nodes whose sizes [MiB] have these bus bandwidths [GB/s]."""
    setup = Setup(load_machine("dgx-h100"), Nccl())
    group = setup.group("all_reduce", 16, 2, sizes("64MiB:8GiB"))
    lines = []
    for line in group.lines:
        rate = rates.get(int(line.size) // MIB)
        lines.append(replace(line, seconds=line.size * 1.875 / rate / 1e9) if rate else line)
    path = folder / "rates.txt"
    path.write_text(text_of(lines, 2, 1.0), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("rates", "code", "told"),
    [
        ({256: 0.5}, 0, r"normal: times lie where this cluster's should, but 1 of 8 rows of "
         r">= 64 MiB is low by itself: 256 MiB \(0.5 of \d+(\.\d)? GB/s\)"),
        ({128: 20, 256: 20, 1024: 20}, 1, r"low: slower than this cluster should be: 3 of 8 rows "
         r"of >= 64 MiB are low by themselves: 1 GiB .*128 MiB \(20 of \d+(\.\d)? GB/s\)"),
        ({2048: 60, 4096: 60, 8192: 60}, 1, r"low: .* 3 of 8 rows of >= 64 MiB are low by "
         r"themselves: .*8 GiB \(60 of .*"),
        ({8192: 60}, 1, r"low: .* 1 of 8 rows of >= 64 MiB is low by itself: 8 GiB \(60 of .*"),
    ],
)  # fmt: skip
def test_large_rows_that_are_low_by_themselves_are_not_outvoted(
    cli: Cli, tmp_path: Path, rates: dict[int, float], code: int, told: str
) -> None:
    """The median of eight is as it should be."""
    path = at_rates(tmp_path, rates)
    done, text = said(cli, path)
    assert done == code
    assert re.search(rf"{told}$", text), text[-400:]
    band = json.loads(cli("check-nccl", path, "--cluster", "dgx-h100", "--json")[1])
    (large,) = band["tables"][0]["bands"]
    assert large["low_sizes"] == [size * MIB for size in sorted(rates)]


def test_one_row_needs_to_be_slower_than_a_median_for_all_to_be_low() -> None:
    """Rows scatter: a fifth of them, or the largest, count where they are MARGIN beyond."""
    low = sensitivity("nvswitch").low

    def verdict(ratio: float, slow: Sequence[int], rows: int = 10) -> str:
        """Of that many sizes, of which those in `slow` take so many times as long."""
        times = [10.0 * (ratio if k in slow else 1.0) for k in range(rows)]
        every = [MeasuredSize((64 << k) * MIB, t, 10.0, 0.1, 1e3) for k, t in enumerate(times)]
        return overall(bands(every, "nvswitch"))

    assert verdict(low * MARGIN * 1.001, [1]) == "normal"
    assert verdict(low * MARGIN * 1.001, [1, 2]) == "low"
    assert verdict(low * MARGIN * 0.999, [1, 2]) == "normal"
    assert verdict(low * MARGIN * 1.001, [9]) == "low"
    assert verdict(low * MARGIN * 0.999, [9]) == "normal"


def test_the_largest_size_is_not_told_apart_where_it_is_as_the_others(
    cli: Cli, tmp_path: Path
) -> None:
    assert "by itself" not in said(cli, slowed(tmp_path, lambda _: 2.2))[1]


def test_the_verdict_names_the_sizes_that_it_is_of(cli: Cli, tmp_path: Path) -> None:
    """Slow from 1 to 64 MiB and nowhere else: what is told of the largest is not the reason."""
    path = slowed(tmp_path, lambda size: 5.0 if MIB <= size < 64 * MIB else 1.0, nodes=2)
    code, told = said(cli, path)
    assert code == 1
    assert "1-64 MiB, low: 100% of its rows are slower than their 90 % interval by more" in told
    assert ">= 64 MiB, normal: the median row takes 1.00 times" in told
    assert told.endswith("low (1-64 MiB): slower than this cluster should be")
    _, told = said(cli, slowed(tmp_path, lambda _: 9.0))
    assert told.endswith("low: slower than this cluster should be")


def test_a_cause_explains_the_sizes_that_are_low(cli: Cli, tmp_path: Path) -> None:
    """Small sizes are 2.5 times as slow, which is normal for them, large ones twice, which is not.
    Sockets would fit all sizes best, and make the large ones six times as slow."""
    path = slowed(tmp_path, lambda size: 2.0 if size >= 64 * MIB else 2.5, nodes=2)
    code, out, _ = cli("check-nccl", path, "--cluster", "dgx-h100", "--json")
    (table,) = json.loads(out)["tables"]
    assert code == 1
    assert [band["verdict"] for band in table["bands"]] == ["normal"] * 3 + ["low"]
    cause, *_ = table["causes"]
    assert cause["name"] == "quarter_of_the_nics"
    assert cause["misfit_of_low"] < math.log(2.0) - 0.05
    assert cause["misfit_of_low"] < cause["misfit"]
    factors = (math.exp(cause[key]) for key in ("misfit", "misfit_of_low"))
    all_of_them, low = (f"{factor:.2f}" for factor in factors)
    told = said(cli, path)[1]
    assert f"all times differ by a factor of {all_of_them}, the low ones by {low})" in told


def test_slow_rows_of_a_normal_range_are_told(cli: Cli, tmp_path: Path) -> None:
    """Less than nine of ten are slower: the rule calls that normal, and the rows are there."""
    path = slowed(tmp_path, lambda size: 9.0 if size >= 2 * MIB else 1.0, nodes=2)
    _, told = said(cli, path)
    assert "1-64 MiB is not called low, though 83% of its rows are slower." in told
    rows = [line for line in Path(path).read_text().splitlines() if " float " in line]
    some = "\n".join(row for row in rows if MIB <= int(row.split()[0]) < 64 * MIB)
    head = Path(path).read_text().split(rows[0])[0]
    alone = tmp_path / "alone.txt"
    alone.write_text(head + some)
    code, told = said(cli, str(alone))
    assert code == 0
    assert told.endswith("normal: fewer than 9 rows of 10 are slower, though most of 1-64 MiB are")


def test_how_fast_is_too_fast_is_told_where_it_is(cli: Cli, tmp_path: Path) -> None:
    path = slowed(tmp_path, lambda _: 0.1)
    _, out, _ = cli("check-nccl", path, "--cluster", "dgx-h100", "--json")
    seen = json.loads(out)["tables"][0]["sensitivity"]["suspicious"]
    assert 0.1 < seen < 1.0
    assert f"below {seen:.2f} times suspicious" in said(cli, path)[1]


def test_slow_and_wrong_results_are_both_in_the_verdict(cli: Cli, tmp_path: Path) -> None:
    path = Path(slowed(tmp_path, lambda _: 9.0))
    path.write_text(path.read_text().replace(" 0\n", " 7\n", 3))
    code, told = said(cli, str(path))
    assert code == 1
    assert told.endswith("low: slower than this cluster should be; and 3 rows have wrong results")


def test_nodes_that_the_file_does_not_tell_are_told(cli: Cli) -> None:
    name = "new-layout-srun-label-p5-2node-allreduce.txt"
    _, out, _ = cli("check-nccl", str(DATA / name), "--cluster", "p5.48xlarge")
    told = " ".join(out.split())
    assert "16 ranks are taken to be on 2 nodes, as few as hold them; say --nodes where" in told
    _, out, _ = cli("check-nccl", str(DATA / name), "--cluster", "p5.48xlarge", "--nodes", "2")
    assert "are taken to be" not in out


def test_what_the_file_does_not_say_is_told(cli: Cli, tmp_path: Path) -> None:
    path = Path(made_up(tmp_path))
    text = "".join(
        line
        for line in path.read_text().splitlines(True)
        if "Rank" not in line and "_perf" not in line
    )
    path.write_text(text, encoding="utf-8")
    _, out, _ = cli("check-nccl", str(path), "--cluster", "dgx-h100", "--nodes", "2", "--json")
    (table,) = json.loads(out)["tables"]
    assert (table["ranks"], table["nodes"]) == (8, 2), "ranks follow from the bandwidths"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("old-layout-a100-1gpu-allreduce.log", "no curve"),
        ("hta-nccl_data.json.gz", ""),
        ("osu-allreduce-gke-cpu-4node.out", "is no text of nccl-tests, nor its JSON"),
        ("nothing.txt", "nothing.txt: there is no such file"),
        ("SOURCES.md", "SOURCES.md: is no text of nccl-tests, nor its JSON"),
    ],
)
def test_wrong_input_is_refused(cli: Cli, name: str, said: str) -> None:
    code, out, err = cli("check-nccl", str(DATA / name), "--cluster", "dgx-a100")
    assert (code, out) == (2, "")
    assert said in err


def test_a_file_of_more_ranks_than_nodes_hold_is_refused(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli("check-nccl", made_up(tmp_path), "--cluster", "four-rtx4090")
    assert code == 2
    assert "4 GPUs a node" in err


# -- the rates ------------------------------------------------------------------------------------


def rates() -> ModuleType:
    path = ROOT / "validation" / "check_nccl_rates.py"
    spec = importlib.util.spec_from_file_location("check_nccl_rates", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_healthy_published_curves_are_seldom_doubted() -> None:
    """The rows that ship; series are told apart by their name's CRC-32."""
    from dpsim.accuracy.collectives.validate import validated_collectives

    (table,) = (ROOT / "validation" / "published").glob("*collectives*.csv")
    found, _ = rates().judged(validated_collectives(table).outcomes)
    healthy = [judged for judged in found if not judged.pathological]
    doubted = [judged for judged in healthy if judged.verdict != "normal"]
    assert len(healthy) > 30
    assert len(doubted) <= 0.05 * len(healthy)
