"""The sections `sites` and `links`: clusters far apart, and what joins them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from dpsim.core import units
from dpsim.core.record import Check, Refused, Text, record
from dpsim.describe.sections import Cluster
from dpsim.machines.wan import Trunk
from dpsim.money.currency import Money, Priced

#: sites of a scenario
MOST = 64


@record
class SiteEntry(Cluster):
    """A site: a cluster with a name; without a machine `ranks` alone."""

    name: Text

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.devices:
            raise Refused("a site has one kind of device; leave it out", ("devices",))
        if self.machine is not None and self.nodes is None:
            raise Refused("is missing; a site has whole nodes", ("nodes",))


@record
class SiteLink:
    """What joins two sites.

    between    their names
    bandwidth  one way
    latency    one way
    loss       share of packets lost; TCP then reaches less (Mathis et al. 1997)
    streams    TCP connections that share the bytes out, where packets are lost
    price      of what crosses it, either way, per GB (1e9 bytes)
    """

    between: tuple[Text, Text]
    bandwidth: units.BytesPerSecond
    latency: units.Seconds = 0.0
    loss: units.Fraction = 0.0
    streams: Annotated[int, Check(1, 100_000)] = 1
    price: Annotated[Money, Priced("GB")] | None = None

    def __post_init__(self) -> None:
        if self.between[0] == self.between[1]:
            raise Refused("joins a site with itself; name two", ("between",))
        if self.price is not None and self.price.currency != "usd":
            raise Refused(f"{str(self.price)!r}: write it in usd/GB", ("price",))

    @property
    def trunk(self) -> Trunk:
        """The same for machines."""
        return Trunk(self.bandwidth, self.latency, self.loss, self.streams)


def together(sites: Sequence[SiteEntry]) -> Cluster:
    """All sites as one cluster of the first one's machine."""
    first = sites[0]
    if first.machine is None:
        return Cluster(ranks=sum(site.ranks or 0 for site in sites))
    return Cluster(
        machine=first.machine,
        nodes=sum(site.nodes or 0 for site in sites),
        gpus_per_node=first.gpus_per_node,
        device=first.device,
    )


def whole_cluster(
    cluster: Cluster | None,
    sites: Sequence[SiteEntry] | None,
    links: Sequence[SiteLink] | None,
    given: Mapping[str, bool],
) -> Cluster:
    """The cluster, or what the sites are together.  Refused where neither or both are there, where
    sites and links do not go together, and where a section is `given` that takes one site."""
    if sites is None:
        if links is not None:
            raise Refused("join sites, and none are given", ("links",))
        if cluster is None:
            raise Refused("is missing", ("cluster",))
        return cluster
    check_sites(sites, links)
    whole = together(sites)
    if cluster is not None and cluster != whole:
        raise Refused("sites are clusters of their own; leave it out", ("cluster",))
    for key, there in given.items():
        if there:
            raise Refused("is not modelled over several sites; leave it out", (key,))
    return whole


def check_sites(sites: Sequence[SiteEntry], links: Sequence[SiteLink] | None) -> None:
    """Refuse sites and links that do not go together."""
    if not 2 <= len(sites) <= MOST:
        raise Refused(f"{len(sites)} sites; 2 to {MOST} are accepted, one is a cluster", ("sites",))
    names = [site.name for site in sites]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise Refused(f"a second site of the name {name[:60]!r}", ("sites", number, "name"))
    if len({site.machine is None for site in sites}) > 1:
        raise Refused("either all sites have a machine, or none has", ("sites",))
    if not links:
        raise Refused("is missing: what joins the sites?", ("links",))
    seen: set[frozenset[str]] = set()
    for number, link in enumerate(links):
        for name in link.between:
            if name not in names:
                said = f"no site is called {name[:60]!r}; there are {', '.join(names)}"
                raise Refused(said, ("links", number, "between"))
        if frozenset(link.between) in seen:
            said = f"{' and '.join(link.between)} are joined already"
            raise Refused(said, ("links", number, "between"))
        seen.add(frozenset(link.between))
