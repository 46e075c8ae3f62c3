"""Rates in texts on networks: what they are of, one way or both, of a NIC or of its ports.

A part of the grammar of links (`grammar.py`), whose vocabulary they are read with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dpsim.accuracy.rules import meaning
from dpsim.accuracy.words import NetworkWords

#: what a rate may be of
GPU, NIC, NODE = "gpu", "nic", "node"
#: what stands for words that are read already, so that counts are not read out of them
READ = " ⟨{}⟩ "
_PORTS = re.compile(r"(?<![\d.⟨-])(?<![A-WY-Za-wy-z_])(\d{1,2}) ?[x×*] {0,2}⟨rate⟩")
_TIMES = re.compile(
    r"\d ?[x×*] ?$|"
    r"\b(?:nics?|hcas?|adapters?)(?: (?:per|each|a|in a) (?:node|server|host|vm))? of $"
)


@dataclass(frozen=True)
class LinkRate:
    """A rate, one way [Gbit/s]: of a GPU, a NIC, a node, or ("") of what is not said.

    bytes  whether it was written in bytes
    """

    gbits: float
    of: str = ""
    bytes: bool = False


def rate_of(text: str, words: NetworkWords) -> tuple[LinkRate | None, str]:
    """The first rate of `text`, one way, and `text` with all rates read."""
    found: LinkRate | None = None
    pieces, start = [], 0
    for match in words.rate.finditer(text):
        value = _gbits(match, words)
        if value is None:
            continue
        pieces += [text[start : match.start()], READ.format("rate")]
        start = match.end()
        found = found or _placed(value, match, text, words)
    return found, "".join([*pieces, text[start:]])


def of_ports(rate: LinkRate | None, text: str, words: NetworkWords) -> LinkRate | None:
    """`rate` of one of a NIC's ports as that of them all, where a factor stands before it in `text`
    and a count of NICs before that."""
    ports, nics = _PORTS.search(text), words.count[0].search(text)
    if rate is None or rate.of not in ("", NIC) or not (ports and nics):
        return rate
    if nics.start() >= ports.start():
        return rate
    return replace(rate, gbits=rate.gbits * int(ports[1]), of=NIC)


def _gbits(match: re.Match[str], words: NetworkWords) -> tuple[float, bool] | None:
    """A rate [Gbit/s] and whether it was written in bytes; None where it is none, such as the
    80GB of a GPU's memory."""
    number, unit, second = match["number"], match["unit"], match["second"]
    per_second = bool(second) or unit in words.rates
    scale = words.rates.get(unit, words.volumes.get(unit))
    if scale is None or not per_second:
        return None
    return float(number or 1) * scale.gbits, scale.bytes


def _placed(
    value: tuple[float, bool], match: re.Match[str], text: str, words: NetworkWords
) -> LinkRate:
    """The rate with what it is of; of both ways together one is half."""
    gbits, in_bytes = value
    before, behind = text[: match.start()].lower(), text[match.end() :].lower()
    if words.both_ways.search(behind) or words.both_ways.search(before):
        gbits /= 2
    of = meaning(words.scopes, behind) or ""
    if not of:
        of = next((scope for scope in (GPU, NODE) if words.before[scope].search(before)), "")
    if of == NODE and _TIMES.search(before):  # 8x 200G per node, 8 NICs of 200G: the count is its
        of = NIC
    return LinkRate(gbits, of, in_bytes)
