"""Of how many kinds nodes and links are: closed counts, and what `explain` says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsim
from dpsim.cases.case import Case
from dpsim.describe.scenario import load
from dpsim.predict.symmetry import NodeKind, Symmetry, symmetry
from dpsim.report.explained import symmetry_text

LAYERS = [{"name": "a", "parameters": 1_000_000, "forward": "1 ms", "backward": "2 ms"}]


def found(cluster: dict[str, Any], base: Path = Path(), **rest: Any) -> Symmetry:
    scenario = {"model": {"layers": LAYERS}, "cluster": cluster, "strategy": {"kind": "ddp"},
                "batch": {"per_device": 1}} | rest  # fmt: skip
    loaded = load(scenario, base, "s")
    told = symmetry(Case(loaded.points[0], loaded.base))
    assert told is not None
    return told


def slow_rack(folder: Path, node: int) -> str:
    """A rack of which one node's cable negotiated a lower speed."""
    text = (Path(__file__).parent.parent / "topologies" / "rack-25gbe.yaml").read_text()
    slow = text.replace("family: star", f"family: star\n  slow_nodes: {{{node}: 1.25 GB/s}}")
    (folder / "slow.yaml").write_text(slow)
    return "slow.yaml"


def test_nodes_of_a_machine_are_of_one_kind() -> None:
    told = found({"machine": "dgx-h100", "nodes": 32})
    assert told.nodes == (NodeKind(32, 0),)
    assert not told.broken


def test_a_slow_cable_a_node_that_is_not_full_and_slow_nodes_make_kinds(tmp_path: Path) -> None:
    cluster = {"machine": slow_rack(tmp_path, 17), "ranks": 1023, "gpus_per_node": 2}
    told = found(cluster, tmp_path, variability={"slow_nodes": {3: 1.2, 5: 1.2}})
    assert told.nodes == (
        NodeKind(508, 0),
        NodeKind(2, 3, ("compute",)),
        NodeKind(1, 17, ("cables",)),
        NodeKind(1, 511, ("counts of ranks",)),
    )
    assert told.broken


def test_links_beside_a_slow_cable_are_classes_of_their_own(tmp_path: Path) -> None:
    """A ring leaves and enters each of 8 nodes once: 8 cables out and 8 in, one of each slow."""
    even = found({"machine": "rack-25gbe", "nodes": 8, "gpus_per_node": 1})
    slow = found({"machine": slow_rack(tmp_path, 3), "nodes": 8, "gpus_per_node": 1}, tmp_path)
    assert even.links is not None
    assert slow.links is not None
    assert slow.links.links == even.links.links
    assert slow.links.classes == even.links.classes + 2


def test_samples_and_devices_tell_nodes_apart() -> None:
    told = found({"machine": "dgx-h100", "nodes": 4}, batch={"per_rank": {0: 2}, "per_device": 1})
    assert told.nodes == (NodeKind(3, 1), NodeKind(1, 0, ("samples",)))
    mixed = found({"machine": "dgx-h100", "nodes": 4, "devices": {"8-15": "h200"}},
                  model={"name": "resnet50"})  # fmt: skip
    assert mixed.nodes == (NodeKind(3, 0), NodeKind(1, 1, ("devices",)))


def test_hashed_flows_make_links_between_switches_differ() -> None:
    cluster = {"machine": "dgx-h100", "nodes": 128}
    even, hashed = found(cluster), found(cluster | {"routing": "ecmp"})
    assert even.links is not None
    assert hashed.links is not None
    assert hashed.links.between_classes > even.links.between_classes
    assert hashed.nodes == (NodeKind(128, 0),)
    assert (even.broken, hashed.broken) == (False, True)


def test_one_node_has_no_cables_and_a_toy_no_nodes() -> None:
    told = found({"machine": "dgx-h100", "nodes": 1})
    assert told.nodes == (NodeKind(1, 0),)
    ring = {"backend": "ideal_ring", "latency": "1 us", "bandwidth": "1 GB/s"}
    toy = {"model": {"layers": LAYERS}, "cluster": {"ranks": 4}, "strategy": {"kind": "ddp"},
           "batch": {"per_device": 1}, "collective": ring}  # fmt: skip
    loaded = load(toy, Path(), "s")
    assert symmetry(Case(loaded.points[0], loaded.base)) is None


def test_what_is_said_of_kinds(tmp_path: Path) -> None:
    cluster = {"machine": slow_rack(tmp_path, 17), "ranks": 1023, "gpus_per_node": 2}
    said = symmetry_text(found(cluster, tmp_path, variability={"slow_nodes": {3: 1.2, 5: 1.2}}))
    assert said.startswith(
        "512 nodes are of 4 kinds: 508 alike, 2 with other compute (from node 3 on), 1 with other "
        "cables (node 17), 1 with other counts of ranks (node 511).  The "
    )
    assert said.endswith(" classes.")


@pytest.mark.parametrize("slow", [None, {1: 1.5}])
def test_an_explanation_has_the_kinds_in_its_document(slow: dict[int, float] | None) -> None:
    scenario = {"model": {"layers": LAYERS}, "cluster": {"machine": "dgx-h100", "nodes": 2},
                "strategy": {"kind": "ddp"}, "batch": {"per_device": 1},
                "variability": {"slow_nodes": slow} if slow else {}}  # fmt: skip
    point = dpsim.explain(scenario).document["points"][0]
    assert len(point["symmetry"]["nodes"]) == (2 if slow else 1)
    assert point["symmetry"]["links"]["collective"] == "all_reduce"
