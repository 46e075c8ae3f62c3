"""Requests with their lengths and, where nobody waits for answers, their arrivals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple

import numpy as np

from dpsim.core.arrays import Array
from dpsim.core.files import read_text
from dpsim.core.jsonfile import loads
from dpsim.core.places import below
from dpsim.core.record import Refused, build, record
from dpsim.core.units import Unit
from dpsim.serving.described import MOST_REQUESTS, Requests, Tokens
from dpsim.variability.draws import stream

#: bytes of a file of requests
LARGEST = 50_000_000


class Ask(NamedTuple):
    """A request: its number, when it comes [s] (None: when an answer makes room for it), and tokens
    of its prompt and of its answer."""

    number: int
    arrival: float | None
    prompt: int
    answer: int


@record
class RequestLine:
    """A line of a file of requests."""

    arrival_s: Annotated[float, Unit("1", high=1e9)]
    input: Tokens
    output: Tokens


def fewer(requests: Requests, share: float) -> Requests:
    """A `share` of the load: of the rate or of those who ask at once, and of the requests."""
    if share == 1.0 or requests.file is not None:
        return requests
    rate = None if requests.rate is None else requests.rate * share
    at_once = requests.concurrency and max(round(requests.concurrency * share), 1)
    count = max(round(requests.count * share), 1)
    return replace(requests, count=count, rate=rate, concurrency=at_once)


def counted(requests: Requests, base: Path) -> Requests:
    """`requests` with the count of those in their file, where they are in one."""
    if requests.file is None:
        return requests
    return replace(requests, count=len(_from_file(requests.file, base)))


def shared_evenly(requests: Requests, share: float) -> bool:
    """Whether a `share` of the load is as much as is said: whole users, and requests to 1 %."""
    users = (requests.concurrency or 0) * share
    count = requests.count * share
    return abs(users - round(users)) < 1e-9 and abs(count - round(count)) <= 0.01 * count


def asked(
    requests: Requests, seed: int, base: Path = Path(), share: float = 1.0
) -> tuple[Ask, ...]:
    """The requests, in the order in which they come, or a `share` of the load: of a file the first
    ones, whose arrivals are as much further apart.

    Arrivals, prompts and answers are drawn from streams of their own, so none shifts another.
    Lengths are quantiles of their distribution in a drawn order, and arrivals of a Poisson process
    those of one that brings so many in so long: what is asked in all does not depend on the seed.
    """
    if requests.file is not None:
        found = _from_file(requests.file, base)
        kept = found[: max(round(len(found) * share), 1)]
        return tuple(
            one._replace(arrival=one.arrival / share) for one in kept if one.arrival is not None
        )
    requests = fewer(requests, share)
    assert requests.input is not None
    assert requests.output is not None
    prompts = _lengths(requests, requests.input, seed, "input")
    answers = _lengths(requests, requests.output, seed, "output")
    arrivals: list[float | None] = [None] * requests.count
    if requests.rate is not None:
        arrivals = list(map(float, _arrivals(requests, requests.rate, seed)))
    lines = zip(arrivals, prompts, answers, strict=True)
    return tuple(Ask(k, at, int(p), int(a)) for k, (at, p, a) in enumerate(lines))


def _arrivals(requests: Requests, rate: float, seed: int) -> Array:
    """Times of a Poisson process that brings so many requests in as many gaps of count / rate
    together: the first at 0, the others uniform numbers in their order (Cox and Lewis, 1966,
    section 2.3); or even ones.  The last gap is behind the last request."""
    n = requests.count
    if requests.arrivals == "even":
        return np.asarray(np.arange(n) / rate)
    found = np.sort(stream(seed, "serving.arrivals", 0).random(n - 1)) * n / rate
    return np.concatenate([[0.0], found])


def _lengths(requests: Requests, mean: int, seed: int, what: str) -> Array:
    """Tokens of all prompts ("input") or answers ("output")."""
    n = requests.count
    shares = (stream(seed, f"serving.{what}", 0).permutation(n) + 0.5) / n
    if requests.lengths == "uniform":
        factors = 1.0 + requests.spread * (2.0 * shares - 1.0)
    elif requests.lengths == "lognormal":
        sigma = float(np.sqrt(np.log1p(requests.spread**2)))
        normal = np.array([NormalDist().inv_cdf(share) for share in shares])
        factors = np.exp(sigma * normal - sigma**2 / 2)
    else:
        factors = np.ones(n)
    return np.maximum(np.rint(mean * factors), 1)


def _from_file(name: str, base: Path) -> tuple[Ask, ...]:
    path = below(base, name, "file")
    if not path.is_file():
        raise Refused(f"no file {name[:200]!r} beside the scenario", ("requests", "file"))
    found = []
    lines = [line for line in read_text(path, LARGEST).splitlines() if line.strip()]
    if not 1 <= len(lines) <= MOST_REQUESTS:
        raise Refused(
            f"{name[:200]} has {len(lines):,} lines; 1 … {MOST_REQUESTS:,} are accepted",
            ("requests", "file"),
        )
    for number, line in enumerate(lines, start=1):
        try:
            data: Any = loads(line)
            one = build(RequestLine, data)
        except Refused as error:
            raise Refused(f"{name[:200]}:{number}: {error}", ("requests", "file")) from None
        found.append((one.arrival_s, one.input, one.output))
    found.sort(key=lambda each: each[0])
    first = found[0][0]
    return tuple(Ask(k, at - first, p, a) for k, (at, p, a) in enumerate(found))
