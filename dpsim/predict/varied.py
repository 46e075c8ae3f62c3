"""What the keys of a scenario's `cluster` replace of a machine, for collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpsim.core.overrides import apply_sets
from dpsim.core.record import Refused, build, dotted
from dpsim.describe.sections import Cluster

#: keys of `cluster` that say what joins the ranks
KEYS = (
    "gpus_per_node", "nics_per_node", "inter_node_bandwidth", "inter_node_kind",
    "inter_node_latency", "oversubscription",
)  # fmt: skip


def changes_of(machine: str, sets: Sequence[str]) -> dict[str, Any]:
    """The arguments of `Machine.topology` that `sets`, such as "cluster.nics_per_node=4", give.

    Raises Refused for other keys than `KEYS`, and for values that a scenario would not take.
    """
    if not sets:
        return {}
    data: dict[str, Any] = {"cluster": {"machine": machine, "nodes": 1}}
    texts = apply_sets(data, sets)
    for path, text in texts.items():
        section, _, key = path.partition(".")
        if section != "cluster" or key not in KEYS:
            known = ", ".join(f"cluster.{name}" for name in KEYS)
            raise Refused(f"--set {text}: of a scenario's keys a collective has {known}")
    try:
        cluster = build(Cluster, data["cluster"], file=True, path=("cluster",))
    except Refused as error:
        text = texts.get(dotted(error.path), sets[0])
        raise Refused(f"--set {text}: {error}") from None
    return {key: getattr(cluster, key) for key in KEYS if key in data["cluster"]}
