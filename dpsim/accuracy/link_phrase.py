"""What a text tells of one network: its kind, how many NICs a node has and how fast they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpsim.accuracy.link_rates import GPU, NIC, NODE, LinkRate
from dpsim.accuracy.words import vocabulary
from dpsim.core.record import Refused
from dpsim.machines.devices import NetworkKind

#: networks whose NICs speak no TCP of their own
_WITHOUT_SOCKETS = ("infiniband", "omni_path")
#: how far rates that are rounded may be off each other
_APART = 0.1
#: more NICs than a node, or an NVLink domain that spans nodes, has
_MOST = 256


@dataclass(frozen=True)
class LinkPhrase:
    """One network as a text tells it; None and "" are what it leaves open.

    use      compute, storage or management
    kind     what it is, `broad` where the word means more than that (RDMA, TCP, Ethernet)
    count    NICs of a node, of a GPU where `each_gpu`
    nominal  line rate of a NIC by its generation or model [Gbit/s]
    sockets  whether it is used through TCP
    note     what there is to tell about its kind
    times    whether the count stands as a factor beside the rate
    wrong    how its rates contradict each other; "" where they don't
    """

    use: str = ""
    kind: NetworkKind | None = None
    broad: bool = False
    count: int | None = None
    each_gpu: bool = False
    rate: LinkRate | None = None
    nominal: float | None = None
    sockets: bool = False
    note: str = ""
    times: bool = False
    wrong: str = ""

    @property
    def numbers(self) -> bool:
        """Whether it says how many or how fast."""
        return not (self.count is None and self.rate is None and self.nominal is None)

    @property
    def per_gpu(self) -> bool:
        """Whether it tells what every GPU has."""
        return self.each_gpu or (self.rate is not None and self.rate.of == GPU)

    def several(self, gbits: float) -> bool:
        """Whether a rate of `gbits` is that of several NICs of the generation that is named too."""
        times = gbits / self.nominal if self.nominal else 1.0
        whole = times > 1.01 and math.isclose(times, round(times), rel_tol=0.01)
        of_one = self.rate is not None and self.rate.of in (GPU, NIC)
        counted = self.count is None or self.count == round(times)
        return whole and not (of_one or self.times) and counted

    @property
    def joined_by(self) -> NetworkKind | None:
        """What kind of network a transfer sees: through TCP, that of its sockets."""
        if not self.sockets or self.kind in ("gvnic", "ipoib", "slingshot_ip"):
            return self.kind
        if self.kind == "slingshot":
            return "slingshot_ip"
        return "ipoib" if self.kind in _WITHOUT_SOCKETS else "ethernet"

    def filled(self, other: LinkPhrase) -> LinkPhrase:
        """This, with what it leaves open as `other` says it."""
        narrower = self.kind is None or (self.broad and other.kind is not None and not other.broad)
        found = replace(
            self,
            use=self.use or other.use,
            sockets=self.sockets or other.sockets,
            rate=self.rate or other.rate,
            nominal=self.nominal if self.nominal is not None else other.nominal,
            wrong=self.wrong or other.wrong or _contradicting(self, other),
        )
        if self.count is None:
            found = replace(found, count=other.count, each_gpu=self.each_gpu or other.each_gpu)
        if not narrower:
            return found
        return replace(found, kind=other.kind, broad=other.broad, note=other.note)

    def of_all(self) -> LinkPhrase:
        """This, with a rate that no NIC has, and `count` NICs together have, as the node's."""
        rate, known = self.rate, vocabulary().network.line_rates
        if rate is None or rate.of or not self.count or self.each_gpu or rate.gbits in known:
            return self
        alike = any(math.isclose(rate.gbits / self.count, each, rel_tol=1e-3) for each in known)
        beyond = rate.gbits > max(known)  # what no NIC has, several have
        node = (alike or beyond) and self.count > 1 and not self.times
        return replace(self, rate=replace(rate, of=NODE)) if node else self


def _contradicting(one: LinkPhrase, other: LinkPhrase) -> str:
    """How a node's rate and NICs beside it contradict each other; "" where they don't."""
    for nics, node in ((one, other), (other, one)):
        each, whole = nics.rate, node.rate
        if not (each and whole and nics.count and not nics.each_gpu):
            continue
        beside = each.gbits * nics.count
        if each.of in ("", NIC) and whole.of == NODE and abs(beside / whole.gbits - 1) > _APART:
            return f"{nics.count} x {each.gbits:g} Gbit/s are not {whole.gbits:g} a node"
    return ""


def counted(count: int) -> int:
    """`count`; Refused where no node has so many NICs."""
    if count > _MOST:
        raise Refused(f"{count} NICs in a node are more than any has", ("inter_node",))
    return count
