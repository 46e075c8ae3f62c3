"""Machines: devices, links, fabrics, topology, machine files."""
