"""Why no role can go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dpsim.compile.program import RECEIVE, SEND, Cast
from dpsim.core.deferred import nx
from dpsim.core.errors import SimulationError
from dpsim.play import NotApplicable
from dpsim.play.vectorised.role import Role


def stuck(cast: Cast, roles: Sequence[Role]) -> SimulationError | NotApplicable:
    """A deadlock, or only an order that one pass cannot follow."""
    waiting = [
        f"role {k} (rank {int(role.members[0])}, …) at {role.task.op.name}"
        for k, role in enumerate(roles)
        if role.arrived
    ]
    waiting += [
        f"role {k} (rank {int(role.members[0])}, …) for {role.task.op.name}"
        for k, role in enumerate(roles)
        if not role.arrived and role.next < len(role.program.tasks)
    ]
    counts = [
        Counter((op.stream, op.group) for op in program.ops if op.kind == "collective")
        for program in cast.programs
    ]
    waits = _waits(cast)
    never = any(v[0] == "sent" and not waits.in_degree(v) for v in waits)
    agree = counts.count(counts[0]) == len(counts) and not never
    if agree and nx.is_directed_acyclic_graph(waits):
        return NotApplicable(
            "roles issue collectives of different communicators in different orders; only "
            "engine: event plays that"
        )
    return SimulationError("deadlock: these wait for each other: " + "; ".join(waiting))


def _waits(cast: Cast) -> nx.DiGraph[Any]:
    """What waits for what in a step; the roles' shares of a collective are one vertex."""
    graph: nx.DiGraph[Any] = nx.DiGraph()
    for role, program in enumerate(cast.programs):
        tail: dict[str, tuple[object, ...]] = {}
        hosts: list[tuple[object, ...]] = []
        vertices: list[tuple[object, ...]] = []
        for index, op in enumerate(program.ops):
            shared = (op.stream, op.group, program.ordinals[index])
            vertex = shared if op.kind == "collective" else (role, index)
            before = [vertices[other] for other in op.after] + hosts
            if op.operation == SEND:
                graph.add_edge(vertex, ("sent", *shared))
            if op.operation == RECEIVE:
                before.append(("sent", *shared))
            before += [tail[op.stream]] if op.stream in tail else []
            graph.add_edges_from((other, vertex) for other in before)
            hosts += [vertex] if op.blocks_host else []
            vertices.append(vertex)
            tail[op.stream] = vertex
    return graph
