"""Machines: devices, links, fabrics, topology, machine files."""

from dpsim.core.deferred import defer

defer("networkx")  # 300 modules, for graphs that few commands need
