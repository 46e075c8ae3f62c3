"""The grammar of what tables say about links: one reader for every text on a network.

    text    := part ((";" | "|" | "," | "+" | " / " | "and" | line end) part)*
    part    := [use ":"] fact* ["(" fact* ")"]
    fact    := count | rate | generation | kind | words that mean nothing here
    count   := N "x" | "x" N | N (NICs | ports | …) | one … eight | single- | dual- | quad-rail
    rate    := [N "x"] N unit [for what] [direction]

Units are bits and bytes as they are written (Gb/s, Gbps, GbE, GB/s, GiB/s, 400G); a rate holds
per GPU, per NIC or per node, one way or both ways.  A rate that is what a count beside it makes
of line rates is a node's: 1600 Gbit/s and 8 NICs.  A factor behind a count is of the ports of each
NIC: 4x ConnectX-8 2x400 Gbit/s.  A generation (NDR) beside Ethernet or RoCE is its speed.  What a
part in brackets says fills what the text before it leaves open.  A part that says again what an
earlier one has said, and names a kind of network, a count or a use, begins another network; all
others add to the one before.

The vocabulary is data (`words.yaml`, section network); what is read is a `LinkPhrase`, and
`chosen` says which of several networks of a node carries what GPUs exchange.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from dpsim.accuracy.asides import ASIDE_USES, BRACKETS, product, with_aside
from dpsim.accuracy.denials import affirmed, in_use
from dpsim.accuracy.link_phrase import LinkPhrase, counted
from dpsim.accuracy.link_rates import GPU, NIC, NODE, READ, LinkRate, of_ports, rate_of
from dpsim.accuracy.rules import first, meaning
from dpsim.accuracy.words import NetworkWords, vocabulary

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
#: names of one adapter after another
_ADAPTERS = re.compile(r"\bmlx5_\d+(?::\d)?(?: ?, ?mlx5_\d+(?::\d)?)+", re.IGNORECASE)
#: names of a Slingshot node's interfaces, as the first and the last or one after another
_HSN = re.compile(
    r"\bhsn(\d) ?(?:-|–|to|\.\.\.?) ?(?:hsn)?(\d)\b|\bhsn\[(\d)-(\d)\]|"
    r"\bhsn\d(?: ?, ?hsn\d)+",
    re.IGNORECASE,
)
#: so many cards of so many times a rate are not that rate's: one card may well run at less
_SEVERAL = 4
_FACTOR = re.compile(r"⟨rate⟩ {0,2}[x×*]|[x×*] {0,2}⟨rate⟩")
_SEPARATOR = re.compile(
    r"[;|,\n+&]|\b(?:and|plus|alongside|as well as)\b|"
    r"\bwith (?=(?:an? )?(?:\d{1,2} ?[x×*] ?)?\d{1,3} ?-?(?:gb?e\b|g\S{0,5} ethernet))|"
    r" / (?!\s*(?:nic|gpu|port|node|server|s\b))",
    re.IGNORECASE,
)


def sides(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The parts of `text` on the network, and those on the inside of the node.

    What is said of a benchmark is neither, to the end of its sentence: what was measured is not
    the line rate.  Nor is what is said not to be in use.
    """
    words = vocabulary().network
    outer: list[str] = []
    inner: list[str] = []
    benchmark = False
    plain = _ADAPTERS.sub(lambda names: f"{names[0].count('mlx5')}x", _THOUSANDS.sub("", text))
    plain = _HSN.sub(_interfaces, plain)
    for part, ends in _parts(words.label.sub(r"\1;", affirmed(plain))):
        part = BRACKETS.sub(_but(words.benchmark), part)
        low = part.lower()
        benchmark = benchmark or words.benchmark.search(low) is not None
        if not benchmark and not words.to_host.search(low):
            side = inner if words.inside.search(low) and not words.outside.search(low) else outer
            side.append(part)
        benchmark = benchmark and not ends
    return in_use(outer), tuple(inner)


def _interfaces(names: re.Match[str]) -> str:
    """So many NICs as the `names` of interfaces are: hsn0-hsn3 are four."""
    ends = [int(end) for end in names.groups() if end]
    count = ends[1] - ends[0] + 1 if ends else names[0].lower().count("hsn")
    return f"{count} hsn nics" if count > 0 else names[0]


def _but(words: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """What leaves out of brackets those that have `words`."""
    return lambda aside: "" if words.search(aside[0].lower()) else aside[0]


def networks(parts: Iterable[str]) -> tuple[LinkPhrase, ...]:
    """The networks that the `parts` of a text on it tell, in their order."""
    found: list[LinkPhrase] = []
    for part in _with_scopes(parts):
        now = _phrase(part)
        limit = now.rate if vocabulary().network.held.search(part.lower()) else None
        if found and limit and not (now.kind or now.count or now.use):
            found[-1] = _limited(found[-1], limit)
        elif found and not _another(found[-1], now):
            found[-1] = found[-1].filled(now).of_all()
        else:
            found.append(now)
    return tuple(p for p in found if p.numbers or p.kind or p.use or p.sockets)


def _with_scopes(parts: Iterable[str]) -> list[str]:
    """The `parts`; one that says only what a rate is of belongs to the one before it, or to the
    next."""
    found: list[str] = []
    ahead = ""
    for part in parts:
        if not vocabulary().network.scope_alone.search(part.lower()):
            found, ahead = [*found, f"{ahead}{part}"], ""
        elif found:
            found[-1] += f" {part}"
        else:
            ahead = f"{part} "
    return found


def chosen(
    phrases: Sequence[LinkPhrase], total: float | None, gpus: int, notes: list[str]
) -> LinkPhrase:
    """The one that carries what GPUs exchange: said to be for compute, else the one that makes
    `total` [Gbit/s of a node], else the fastest.  Numbers of another part on the same kind count
    for it too.  `notes` grow by the others."""
    if not phrases:
        return LinkPhrase()
    own = [p for p in phrases if p.use == "compute"] or [p for p in phrases if not p.use]
    counted = [p for p in own if p.numbers]
    if not counted:
        found = _merged(own or [LinkPhrase()])
        alike = (p for p in phrases if p.numbers and p.kind == found.kind and p.kind)
        return found.filled(next(alike, LinkPhrase()))
    making = [p for p in counted if total and math.isclose(_whole(p, gpus), total, rel_tol=0.01)]
    best = max(making or counted, key=lambda p: (not _plain(p), _whole(p, gpus)))
    others = [p for p in counted if p is not best and p.kind != best.kind]
    if others:
        notes.append(f"Of {len(others) + 1} networks the {best.kind or 'fastest'} one is taken.")
    return _merged([best, *(p for p in phrases if not p.numbers and not p.use)])


def _plain(phrase: LinkPhrase) -> bool:
    return phrase.kind == "ethernet"


def _merged(phrases: Iterable[LinkPhrase]) -> LinkPhrase:
    """The first one, with what the others add; of kinds alone the first that is no plain
    Ethernet's."""
    first_of, *others = phrases
    if not first_of.numbers and _plain(first_of):
        named = next((p for p in others if p.kind and not _plain(p)), None)
        first_of = replace(first_of, kind=named.kind, note=named.note) if named else first_of
    for other in others:
        first_of = first_of.filled(replace(other, use=""))
    return first_of


def _whole(phrase: LinkPhrase, gpus: int) -> float:
    """What all NICs of a node carry together [Gbit/s], one where nothing is said."""
    if phrase.rate and phrase.rate.of == NODE:
        return phrase.rate.gbits
    each = phrase.rate.gbits if phrase.rate else phrase.nominal or 0.0
    many = gpus if phrase.each_gpu or (phrase.rate and phrase.rate.of == GPU) else 1
    return each * many * (phrase.count or 1)


def _another(before: LinkPhrase, now: LinkPhrase) -> bool:
    """Whether `now` begins another network than `before`."""
    if now.use and (before.use or before.numbers or before.kind):
        return True
    aside = before.use in ASIDE_USES and before.numbers
    if aside and now.kind and now.numbers:
        return True
    kinds = before.kind and now.kind and before.kind != now.kind
    if kinds and (not (before.broad or now.broad) or _apart(before, now) or _apart(now, before)):
        return True
    if _faster_cards(before, now) or _too_slow(before, now) or _too_slow(now, before):
        return True
    counts = before.count is not None and now.count is not None
    rates = before.rate is not None and now.rate is not None
    return bool((counts and (now.kind or now.rate)) or (rates and (now.kind or now.count)))


def _apart(one: LinkPhrase, other: LinkPhrase) -> bool:
    """Whether `one` is Ethernet of another rate than the generation that `other` names."""
    rates = _plain(one) and one.rate and other.nominal and other.rate is None
    return bool(rates and one.rate and not math.isclose(one.rate.gbits, other.nominal or 0.0))


def _faster_cards(before: LinkPhrase, now: LinkPhrase) -> bool:
    """Whether `now` tells cards by their model that Ethernet of the rate `before` is none of: with
    another rate of their own, or several of many times that rate (10 GbE; ConnectX-6 200G)."""
    slow = before.rate.gbits if before.rate and _plain(before) else 0.0
    if not (slow and now.nominal) or now.kind:
        return False
    if now.rate is not None:
        return now.rate.gbits > 1.01 * slow
    return (now.count or 0) >= _SEVERAL and now.nominal >= _SEVERAL * slow


def _too_slow(one: LinkPhrase, other: LinkPhrase) -> bool:
    """Whether `one` is Ethernet of a rate that the network of RDMA that `other` names never has."""
    slow = vocabulary().network.ethernet_rates
    rated = _plain(one) and one.rate is not None and one.rate.gbits in slow
    return rated and other.kind in ("infiniband", "omni_path", "slingshot", "efa")


# -- parts ----------------------------------------------------------------------------------------


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of `text`, and whether a sentence ends there; a separator inside brackets
    separates nothing."""
    depth, start = 0, 0
    for mark in re.finditer(r"[([]|[)\]]|" + _SEPARATOR.pattern, text, re.IGNORECASE):
        if mark[0] in "([":
            depth += 1
        elif mark[0] in ")]":
            depth = max(depth - 1, 0)
        elif depth == 0:
            yield text[start : mark.start()], mark[0] in ";|\n"
            start = mark.end()
    yield text[start:], True


def _phrase(part: str) -> LinkPhrase:
    words, outer = vocabulary().network, BRACKETS.sub(" ", part)
    found = _facts(outer)
    for aside in re.findall(r"[([]([^()\[\]]*)[)\]]", part):
        found = with_aside(found, aside, outer, _facts)
    each_gpu = words.before[GPU].search(outer.lower())
    if each_gpu and found.rate and not found.rate.of:
        found = replace(found, rate=replace(found.rate, of=GPU))
    rate, nominal = found.rate, found.nominal
    if rate and nominal and _of_both_ways(rate.gbits / nominal, part.lower()):
        found = replace(found, rate=replace(rate, gbits=nominal))
    return product(found, part).of_all()


def _of_both_ways(share: float, part: str) -> bool:
    """Whether a rate is `share` of the line rate for it counts both ways, of which half was taken
    where `part` says so in words that mean that; links that are full duplex say nothing of it."""
    words = vocabulary().network
    halved = words.both_ways.search(part) and share == 0.5
    return bool(halved or (words.duplex.search(part) and share == 2.0))


def _facts(text: str) -> LinkPhrase:
    """What a part without brackets says."""
    words = vocabulary().network
    text = words.gigabit.sub(lambda found: f"{found[1] or 1} GbE", text)
    text = words.swapped.sub(r"\2x \1G", words.slips.sub(r"\1 Gb", text))
    low = text.lower()
    named = first(words.kinds, words.speeds.sub(" ", low) if words.on_ethernet.search(low) else low)
    *_, at = re.split(words.running.pattern, text, flags=re.IGNORECASE)
    generation = first(words.generations, at.lower()) or first(words.generations, low)
    rate, rest = rate_of(_without(text, words.lanes, "inside"), words)
    *_, down = re.split(words.held.pattern, text, flags=re.IGNORECASE)
    limit = rate_of(down, words)[0] if down != text else None
    nominal = generation.gbits if generation else None
    for read in (*(e.words for e in words.generations), words.names, *_narrow(words)):
        rest = _without(rest, read, "net")
    rest = " ".join(rest.split())
    count, each_gpu = _count(rest, words)
    rate = of_ports(rate, rest, words)
    found = LinkPhrase(
        use=meaning(words.uses, low) or "", kind=named.kind if named else None,
        broad=named is not None and named.broad, count=count, each_gpu=each_gpu, rate=rate,
        sockets=words.tcp.search(low) is not None and not words.tcpx.search(low),
        nominal=nominal, note=named.note if named else "",
        times=_FACTOR.search(rest) is not None,
    )  # fmt: skip
    return _limited(found, limit) if limit else found


def _limited(found: LinkPhrase, limit: LinkRate) -> LinkPhrase:
    """`found`, held down to `limit`: of a GPU or a node it leaves nothing of how many NICs have
    it.  What is no less than what is told is no limit."""
    told = found.rate.gbits if found.rate and found.rate is not limit else found.nominal
    if limit.of in ("", NIC, GPU) and told and limit.gbits >= told and found.rate is not limit:
        return found
    if limit.of in (GPU, NODE):
        return replace(found, rate=limit, nominal=None, count=None, each_gpu=False, times=False)
    return replace(found, rate=limit, nominal=None)


def _narrow(words: NetworkWords) -> list[re.Pattern[str]]:
    return [entry.words for entry in words.kinds if not entry.broad]


def _without(text: str, words: re.Pattern[str], why: str) -> str:
    """`text` with `words`, in any case, marked as read."""
    return re.sub(words.pattern, READ.format(why), text, flags=re.IGNORECASE)


# -- numbers --------------------------------------------------------------------------------------


def _count(text: str, words: NetworkWords) -> tuple[int | None, bool]:
    """How many NICs, and whether for every GPU."""
    low = text.lower()
    if each := words.several_each.search(text):
        return int(each[1]), True
    if words.one_each.search(low):
        return 1, True
    spelled = meaning(words.counts, low)
    if spelled is not None:
        return spelled, False
    for way in words.count:
        if found := way.search(text):
            return counted(int(found[1])), False
    return None, False
