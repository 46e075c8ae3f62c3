"""What brackets add to the text on a network before them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

from dpsim.accuracy.link_phrase import LinkPhrase, counted
from dpsim.accuracy.link_rates import NIC, NODE, LinkRate
from dpsim.accuracy.rules import meaning
from dpsim.accuracy.words import vocabulary

#: networks that GPUs exchange nothing over
ASIDE_USES = ("storage", "management")
BRACKETS = re.compile(r"[([][^()\[\]]*[)\]]")
#: a count alone: 4x are the lanes of an InfiniBand port, x16 those of a slot, as x8 beside a card
_ALONE = re.compile(r"\s*(?:[x×*] ?(?!16\b)(\d{1,3})|(?!4 ?[x×*])(\d{1,3}) ?[x×*])\s*")
_CARD = re.compile(r"\b(?:nics?|cards?|adapters?)\b|connect-?x|\bcx-?\d", re.IGNORECASE)
_SLOT = 8
_PRODUCT = re.compile(r"(?<![\d.])(\d{1,3}) ?[x×*] ?(\d+(?:\.\d+)?)(?![\d.])")
#: ports of a NIC
_PORTS = (2, 4)


def with_aside(
    found: LinkPhrase, aside: str, outer: str, facts: Callable[[str], LinkPhrase]
) -> LinkPhrase:
    """`found` in the text `outer` with what brackets behind it say, of which `facts` tells what a
    text says."""
    words, low = vocabulary().network, aside.lower()
    if words.aside.search(low):
        return found
    if words.scope_alone.search(low):
        of, rate = meaning(words.scopes, low), found.rate
        return replace(found, rate=replace(rate, of=rate.of or of)) if rate and of else found
    if number := _ALONE.fullmatch(aside):
        count = int(number[1] or number[2])
        slot = number[1] and count == _SLOT and _CARD.search(outer)
        return found if slot else _counted_beside(found, count)
    told = facts(aside)
    if "," not in aside and (ports := _ports_beside(found, told)):
        return replace(found, rate=ports)
    if told.rate and found.rate and words.one_way.search(low):
        return replace(found, rate=replace(found.rate, gbits=told.rate.gbits))
    return _of_use(found, told, low)


def _of_use(found: LinkPhrase, told: LinkPhrase, aside: str) -> LinkPhrase:
    """`found` with what brackets tell, unless they tell of another network."""
    alone = not (found.use or told.kind or told.numbers or "also" in aside)
    if told.use in ASIDE_USES and alone:
        return replace(found, use=told.use)
    if told.use not in ASIDE_USES or found.use or not (found.kind or found.numbers):
        return found.filled(told)
    return found


def _counted_beside(found: LinkPhrase, count: int) -> LinkPhrase:
    """`found` with a count in brackets; a factor of its rate is then one of ports: 2x200G (x8)."""
    if found.count is None:
        return replace(found, count=counted(count), times=True)
    if found.rate and found.times and found.count == _PORTS[0] and found.rate.of in ("", NIC):
        ports = LinkRate(found.rate.gbits * found.count, NIC)
        return replace(found, rate=ports, count=counted(count))
    return found


def _ports_beside(found: LinkPhrase, told: LinkPhrase) -> LinkRate | None:
    """The rate of a NIC whose ports brackets behind the count of NICs tell: 8x (2x200G)."""
    rate = told.rate
    if found.count is None or found.rate or told.use or told.count not in _PORTS:
        return None
    if rate is None or not told.times or rate.of not in ("", NIC):
        return None
    if found.count == told.count and rate.of != NIC:  # said again
        return None
    whole = rate.gbits * told.count
    fits = found.nominal is None or whole <= 1.01 * found.nominal
    return LinkRate(whole, NIC) if fits else None


def product(found: LinkPhrase, part: str) -> LinkPhrase:
    """`found` with its rate as the node's where `part` makes it a product, too: 400G (2x200G)."""
    rate, count = found.rate, found.count
    for told in _PRODUCT.finditer(part):
        unit = 8.0 if rate and rate.bytes else 1.0
        each, whole = unit * float(told[2]), rate.gbits if rate and not rate.of else 0.0
        if int(told[1]) == count and math.isclose(each * count, whole, rel_tol=1e-3):
            return replace(found, rate=LinkRate(whole, NODE))
    return found
