"""Links between the GPUs of an imported machine: counted in a file, or those of the preset."""

from __future__ import annotations

from dpsim.core.record import Refused
from dpsim.machines.devices import Device
from dpsim.measurements.importing.facts import Wires
from dpsim.measurements.importing.ledger import Ledger
from dpsim.measurements.importing.wiring import Fast, fast_of

#: one NVLink, one way [B/s], by the least compute capability; NVIDIA/nccl 2.30.7 src/graph/topo.h
_NVLINK = ((100, 40.1e9), (90, 20.6e9), (87, 20e9), (86, 12e9), (80, 20e9), (70, 20e9), (60, 18e9))
#: NVLinks that a GPU has at most: NVIDIA's whitepapers of P100, V100, TU102, A100, GA102 ("four x4
#: links"), H100 and B200; Orin, Ada and, from 11.0, Thor and the RTX cards of Blackwell have none
_MOST = ((110, 0), (90, 18), (87, 0), (86, 4), (80, 12), (75, 2), (70, 6), (60, 4))
#: one xGMI link, one way [B/s]: ROCm/rccl src/graph/topo.h (commit 08814b0a), ncclTopoXGMISpeed:
#: MI200_, GFX94X_ and GFX95X_XGMI_WIDTH, and VEGA_XGMI_WIDTH for all others
_XGMI = {"gfx908": 24e9, "gfx90a": 36e9, "gfx942": 48e9, "gfx950": 48e9}


def links_of(ledger: Ledger, device: Device, gpus: int) -> Fast | None:
    """Links between GPUs: counted in a file, or the preset's."""
    if found := ledger.first(lambda f: f.wires):
        wires, source = found
        if not wires.to_switch and not wires.pairs:
            ledger.note("node.family", "no NVLink", "file", source)
            return Fast()
        rate = _rate(wires, device, ledger)
        switched = _switched(wires, device, gpus)
        if not all(switched.to_switch):
            raise Refused(f"{source}: some GPUs have links to the switch and some have none")
        fast = Fast(
            tuple(rate * count for count in switched.to_switch),
            {pair: rate * count for pair, count in switched.pairs.items()},
            wires.kind,
        )
        counted = "src/graph/topo.h of " + (
            "ROCm/rccl" if wires.kind == "xgmi" else "NVIDIA/nccl 2.30.7"
        )
        text = f"{source} counts the links; {rate / 1e9:g} GB/s each: {counted}"
        ledger.note("node.links", _shown(switched, wires.kind), "file", text)
        return fast
    like = ledger.like
    if like is None:
        ledger.lacks("node.nvlink", "the files don't list NVLinks")
        return None
    fast = fast_of(like.node, gpus)
    if fast.pairs and gpus > like.gpus_per_node:
        ledger.lacks("node.nvlink", f"wires between {gpus} GPUs")
        return None
    cited = [f"node.{key}.bandwidth" for key in ("nvlink", "pair", "bridge")]
    ledger.preset("node.links", _shown_rates(fast), *cited, "node.links")
    return fast


def _rate(wires: Wires, device: Device, ledger: Ledger) -> float:
    """One link of `device`, one way [B/s]."""
    if wires.kind == "xgmi":
        gcn = ledger.first(lambda f: f.gcn)
        if gcn is None or gcn[0] not in _XGMI:
            raise Refused(f"no bandwidth is known for xGMI links of {gcn[0] if gcn else 'this'}; "
                          f"known: {', '.join(_XGMI)}")  # fmt: skip
        return _XGMI[gcn[0]]
    for low, rate in _NVLINK:
        if device.compute_capability >= low and _most(device):
            return rate
    raise Refused(f"the files list NVLinks, and {device.name} has none; name another --device")


def _most(device: Device) -> int:
    """NVLinks that `device` has at most."""
    return next((count for low, count in _MOST if device.compute_capability >= low), 0)


def _switched(wires: Wires, device: Device, gpus: int) -> Wires:
    """`wires`, seen as links to a switch where a GPU would have more than it can have: nvidia-smi
    counts all links of a GPU towards each of its peers then."""
    if wires.kind == "xgmi" or wires.to_switch:
        return wires
    most = _most(device)
    own = [sum(n for pair, n in wires.pairs.items() if gpu in pair) for gpu in range(gpus)]
    counts = set(wires.pairs.values())
    if max(own) <= most:
        return wires
    complete = len(wires.pairs) == gpus * (gpus - 1) // 2
    if len(counts) > 1 or not complete or max(counts) > most:
        raise Refused(f"GPU {own.index(max(own))} has {max(own)} NVLinks, and {device.name} has at "
                      f"most {most}; a switch would join all pairs equally")  # fmt: skip
    return Wires(wires.kind, (counts.pop(),) * gpus)


def _shown(wires: Wires, kind: str) -> str:
    name = "xGMI" if kind == "xgmi" else "NVLink"
    if wires.to_switch:
        return f"{wires.to_switch[0]} {name} per GPU to a switch"
    counts = "/".join(str(n) for n in sorted(set(wires.pairs.values())))
    return f"{counts} {name} in each of {len(wires.pairs)} pairs"


def _shown_rates(fast: Fast) -> str:
    if fast.to_switch:
        return f"{fast.to_switch[0] / 1e9:g} GB/s per GPU to a switch"
    if fast.pairs:
        rates = "/".join(f"{r / 1e9:g}" for r in sorted(set(fast.pairs.values())))
        return f"{rates} GB/s in each of {len(fast.pairs)} pairs"
    return "none"
