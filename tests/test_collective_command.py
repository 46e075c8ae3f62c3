"""`dpsim collective`: the closed forms of bandwidth, what is asked for, and what is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import dpsim
from dpsim.backends.curves import MeasuredCurve
from dpsim.backends.curves.file import Calibration, write
from dpsim.backends.nccl import Nccl
from dpsim.checks.collective import node_counts, routed, sizes
from dpsim.checks.diagnosis import sensitivity
from dpsim.core.record import Refused
from dpsim.machines.machine import load_machine
from dpsim.predict.collective import Setup, setup_of
from dpsim.predict.varied import changes_of

DATA = Path(__file__).parent / "data" / "calibration"
STARTING = DATA / "new-layout-gh200-8gpu-allreduce-starting-line.txt"
MIB = 2**20

Cli = Callable[..., tuple[int, str, str]]


def setup(machine: str = "dgx-h100", **settings: str) -> Setup:
    return Setup(load_machine(machine), Nccl(**settings))


def test_flows_are_spread_or_hashed_and_nothing_else() -> None:
    for routing in ("balanced", "ecmp"):
        assert routed(setup(), routing, 3).changes == {"routing": routing, "seed": 3}
    with pytest.raises(Refused, match="neither balanced nor ecmp"):
        routed(setup(), "static", 0)


def test_keys_of_the_cluster_vary_the_machine() -> None:
    """As the same machine's file with other numbers would: four GPUs, or half of the NICs."""
    sets = ["cluster.gpus_per_node=4", "cluster.inter_node_bandwidth=25 GB/s"]
    found = setup_of("dgx-h100", {}, sets=sets)
    assert found.changes == {"gpus_per_node": 4, "inter_node_bandwidth": 25e9}
    assert found.per_node == 4
    half = setup_of("dgx-h100", {}, sets=["cluster.nics_per_node=4"])
    asked = ("all_to_all", 16, 2, [1024 * MIB])
    (full,), (less,) = (one.group(*asked).lines for one in (setup(), half))
    assert less.seconds > 1.5 * full.seconds
    assert changes_of("dgx-h100", []) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cluster.nodes=4", "of a scenario's keys a collective has cluster.gpus_per_node"),
        ("model.name=resnet50", "of a scenario's keys"),
        ("cluster.nics_per_node=0", "cluster.nics_per_node: 0 is not in 1"),
        ("cluster.inter_node_bandwidth=25", "25 has no unit"),
        ("nics=4", "of a scenario's keys"),
    ],
)
def test_other_keys_and_bad_values_are_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        changes_of("dgx-h100", [text])


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        ("all_reduce", lambda n: 2 * (n - 1) / n),
        ("all_gather", lambda n: (n - 1) / n),
        ("reduce_scatter", lambda n: (n - 1) / n),
        ("broadcast", lambda n: 1.0),
        ("reduce", lambda n: 1.0),
        ("all_to_all", lambda n: (n - 1) / n),
        ("send", lambda n: 1.0),
    ],
)
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_bandwidths_follow_from_size_time_and_ranks(
    operation: str, factor: Callable[[int], float], nodes: int
) -> None:
    n = 8 * nodes
    for line in setup().group(operation, n, nodes, [1024, MIB, 1024 * MIB]).lines:
        assert line.algbw == line.size / line.seconds
        assert line.busbw == pytest.approx(line.algbw * factor(n), rel=1e-12)
        assert 0 < line.low <= line.seconds <= line.high


def test_small_sizes_are_bound_by_latency_and_large_ones_by_a_kind_of_link() -> None:
    small, large = setup("dgx-a100").group("all_reduce", 16, 2, [1024, 4096 * MIB]).lines
    assert small.bound == "latency"
    assert large.bound in {"infiniband", "pcie", "nvlink"}
    inside = setup("dgx-a100").group("all_reduce", 8, 1, [4096 * MIB]).lines[0]
    assert inside.bound == "nvlink"


def test_a_forced_algorithm_and_protocol_are_those_of_every_line() -> None:
    forced = setup(algorithm="ring", protocol="simple")
    lines = forced.group("all_reduce", 16, 2, sizes("1KiB:1GiB", 32)).lines
    assert {(line.algorithm, line.protocol) for line in lines} == {("ring", "simple")}


def test_more_connections_carry_more_where_one_is_too_few() -> None:
    """Over 100 Gbit/s of Ethernet, as `collective.sockets` has it; none but NCCL's own as 0."""
    ask = partial(dpsim.collective, "all_reduce", "rack-100gbe", nodes=2, sizes=["1 GiB"])
    own, four, eight = (ask(sockets=n).groups[0].lines[0].seconds for n in (0, 4, 8))
    assert own > 1.5 * four >= 1.5 * eight
    topology = load_machine("rack-100gbe").topology(2)
    plan = Nccl(sockets=4).plan("all_reduce", tuple(range(topology.ranks)), 2.0**30, topology)
    assert four == pytest.approx(plan.seconds)
    assert own == ask().groups[0].lines[0].seconds
    for wrong in (65, -1):
        with pytest.raises(Refused, match=rf"--sockets: {wrong} is not in 1 … 64"):
            ask(sockets=wrong)
    with pytest.raises(Refused, match="ranks exchange over infiniband, and not through TCP"):
        dpsim.collective("all_reduce", "dgx-h100", nodes=2, sizes=["1 GiB"], sockets=8)


def test_sizes_have_the_suffixes_of_nccl_tests() -> None:
    assert sizes("64K:1M", 16) == sizes("64KiB:1MiB", 16) == sizes("64k:1m", 16)
    assert sizes("1G") == (2**30,)


def test_times_are_those_of_the_backend() -> None:
    place = setup()
    topology = place.topology(16, 2)
    plan = Nccl().plan("all_gather", tuple(range(16)), 64.0 * MIB, topology)
    assert place.group("all_gather", 16, 2, [64 * MIB]).lines[0].seconds == plan.seconds


# -- what is asked for ----------------------------------------------------------------------------


def test_node_counts_double_and_end_where_they_are_told_to() -> None:
    assert node_counts("1:16") == node_counts("1:16:x2") == (1, 2, 4, 8, 16)
    assert node_counts("1:12") == (1, 2, 4, 8, 12)
    assert node_counts("3:3") == (3,)
    assert node_counts("8,1") == (8, 1)


def test_sizes_are_those_of_nccl_tests() -> None:
    """-b 1K -e 10K -f 2 measures 1, 2, 4 and 8 KiB: the end is met only if it is hit."""
    assert sizes("1KiB:10KiB", 2) == (1024, 2048, 4096, 8192)
    assert sizes("8 B:8 KiB", 32) == (8, 256, 8192)
    assert sizes("3 MB") == (3_000_000,)


@pytest.mark.parametrize("text", ["", "0", "4:1", "1:", "a", "1,1", "2.5", "-1", "9999999"])
def test_wrong_node_counts_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="--nodes"):
        node_counts(text)


@pytest.mark.parametrize("text", ["", "1024", "8GiB:1KiB", "0 B:1 B", "1 s", "0.5 B", "2 PiB"])
def test_wrong_sizes_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="--sizes"):
        sizes(text)


def test_a_list_of_sizes_is_told_how_sizes_are_written() -> None:
    with pytest.raises(Refused, match=r"sizes are a range, times --factor .*: 1MiB:1GiB"):
        sizes("1MiB,16MiB")


def test_ranks_that_do_not_fit_the_machine_are_refused() -> None:
    with pytest.raises(Refused, match="evenly"):
        setup().topology(9, 2)
    with pytest.raises(Refused, match="8 GPUs a node"):
        setup().topology(16, 1)
    with pytest.raises(Refused, match="alone"):
        setup().group("all_reduce", 1, 1, [1024])


# -- the command ----------------------------------------------------------------------------------


def test_json_has_a_group_for_every_count_and_a_line_for_every_size(cli: Cli) -> None:
    code, out, err = cli(
        "collective", "all_reduce", "--cluster", "dgx-h100", "--nodes", "1:4", "--sizes",
        "1MiB:64MiB", "--factor", "8", "--nccl", "2.21", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert [(g["nodes"], g["ranks"]) for g in document["groups"]] == [(1, 8), (2, 16), (4, 32)]
    for group in document["groups"]:
        assert [line["size_bytes"] for line in group["lines"]] == [MIB, 8 * MIB, 64 * MIB]


@pytest.mark.parametrize(("sizes", "told"), [("32MiB:64MiB", True), ("1MiB:32MiB", False)])
def test_healthy_machines_are_told_of_with_large_sizes(
    cli: Cli, tmp_path: Path, sizes: str, told: bool
) -> None:
    """A row that `check-nccl` calls low may lie inside the interval, which is of all machines."""
    words = ("all_reduce", "--cluster", "dgx-h100", "--nodes", "2", "--sizes", sizes)
    _, out, _ = cli("collective", *words, "-o", "out")
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    known = sensitivity("infiniband")
    said = (
        f"19 of 20 machines without a fault take at most {known.doubtful:.3g} (infiniband, "
        f"{known.machines} published) times as long as this"
    )
    assert (said in " ".join(out.split())) == (said in page) == told
    unknown = cli("collective", *words, "--set", "cluster.inter_node_kind=ethernet")[1]
    assert "without a fault" not in unknown


def test_the_table_and_the_files_say_the_same(cli: Cli, tmp_path: Path) -> None:
    asked = ("collective", "broadcast", "--cluster", "dgx-a100", "--sizes", "1MiB:4MiB")
    code, out, _ = cli(*asked, "-o", "out")
    assert code == 0
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"collective.json", "busbw.png", "busbw.svg", "dpsim.sha256", "index.html"}
    lines = json.loads((tmp_path / "out" / "collective.json").read_text())["groups"][0]["lines"]
    for line in lines:
        assert f"{line['busbw_bytes_per_s'] / 1e9:,.2f}" in out
    first = (tmp_path / "out" / "busbw.svg").read_bytes()
    cli(*asked, "-o", "out")
    assert (tmp_path / "out" / "busbw.svg").read_bytes() == first


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("alltoall", "all_to_all"),
        ("sendrecv", "send"),
        ("reduce", "reduce"),
        ("allreduce", "all_reduce"),
        ("All Reduce", "all_reduce"),
        ("bcast", "broadcast"),
        ("all-gather", "all_gather"),
        ("ReduceScatter", "reduce_scatter"),
    ],
)
def test_the_names_of_nccl_tests_are_understood(cli: Cli, theirs: str, ours: str) -> None:
    asked = ("--cluster", "dgx-a100", "--nodes", "1:2", "--sizes", "1MiB:4MiB", "--json")
    code, out, err = cli("collective", theirs, *asked)
    assert (code, err) == (0, "")
    assert json.loads(out)["operation"] == ours
    assert out == cli("collective", ours, *asked)[1]


def test_a_measured_file_stands_beside_the_prediction(cli: Cli) -> None:
    code, out, _ = cli(
        "collective", "all_reduce", "--cluster", "gh200-4", "--nodes", "1:2", "--sizes",
        "1MiB:128MiB", "--compare", str(STARTING), "--json",
    )  # fmt: skip
    assert code == 0
    one, two = json.loads(out)["groups"]
    assert not any("measured_s" in line for line in one["lines"])
    last = two["lines"][-1]
    assert last["measured_s"] == pytest.approx(1907.9e-6, rel=1e-3)
    assert last["error"] == pytest.approx(last["time_s"] / last["measured_s"] - 1)


def test_a_comparison_with_another_rank_count_is_refused(cli: Cli) -> None:
    code, out, err = cli(
        "collective", "all_reduce", "--cluster", "gh200-4", "--nodes", "4", "--compare",
        str(STARTING),
    )  # fmt: skip
    assert (code, out) == (2, "")
    assert "all_reduce of 8 ranks" in err


def test_measured_curves_replace_the_model(cli: Cli, tmp_path: Path) -> None:
    points = ((1.0 * MIB, 1e-3, 1e-5), (16.0 * MIB, 2e-3, 1e-5))
    curve = MeasuredCurve(operation="all_reduce", ranks=8, nodes=1, points=points)
    made = Calibration(schema_version=1, title="two points", made_from=(), curves=(curve,))
    (tmp_path / "my.yaml").write_text(write(made), encoding="utf-8")
    code, out, err = cli(
        "collective", "all_reduce", "--cluster", "dgx-h100", "--sizes", "1MiB:16MiB", "--factor",
        "16", "--calibration", "my.yaml", "--json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    lines = json.loads(out)["groups"][0]["lines"]
    assert [line["time_s"] for line in lines] == pytest.approx([1e-3, 2e-3], rel=1e-9)
    assert lines[0]["time_high_s"] <= 1e-3 * (1 + max(0.03, 1.645 * 0.01)) * (1 + 1e-9)


def test_switches_that_add_are_compared_by_one_option(cli: Cli) -> None:
    """The same table with and without --sharp; inside a node nothing changes."""
    asked = ("collective", "all_reduce", "--cluster", "dgx-a100", "--nodes", "1,16", "--json")
    tables = []
    for option in ((), ("--sharp",)):
        code, out, err = cli(*asked, "--sizes", "256MiB", *option)
        assert (code, err) == (0, "")
        tables.append([group["lines"][0] for group in json.loads(out)["groups"]])
    (one, many), (one_sharp, many_sharp) = tables
    assert one == one_sharp
    assert many_sharp["algorithm"] == "collnet_direct"
    assert many_sharp["time_s"] < 0.7 * many["time_s"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("gather", "--cluster", "dgx-h100"), "gather is not modelled"),
        (("all_gather", "--cluster", "dgx-h100", "--algorithm", "pat"), "pat cannot do all_gather"),
        (("all_reduce", "--cluster", "dgx-h1000"), "dgx-h100"),
        (("all_reduce", "--cluster", "dgx-h100", "--nccl", "9.9"), "--nccl"),
        (("all_reduce", "--cluster", "dgx-h100", "--algorithm", "collnet"), "--algorithm"),
        (("all_reduce", "--cluster", "dgx-h100", "--algorithm", "collnet_chain"), "--algorithm"),
        (("all_reduce", "--cluster", "dgx-h100", "--sharp"), "--sharp: switches between nodes add"),
        (("all_reduce", "--cluster", "dgx-h100", "--sharp", "--nccl", "2.13"), "--sharp"),
        (
            ("all_reduce", "--cluster", "rack-25gbe", "--nodes", "4", "--sharp"),
            "needs InfiniBand switches",
        ),
        (("all_reduce", "--cluster", "dgx-h100", "--protocol", "fast"), "--protocol"),
        (("all_reduce", "--cluster", "dgx-h100", "--compare", "nothing.txt"), "nothing.txt"),
        (("all_reduce", "--cluster", "dgx-h100", "--calibration", "nothing.yaml"), "nothing.yaml"),
        (("all_reduce",), "--cluster"),
    ],
)
def test_wrong_input_is_refused(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = cli("collective", *arguments)
    assert (code, out) == (2, "")
    assert said in err
