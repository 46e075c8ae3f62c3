"""Points that are played as if communicators did not meet on links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsim.predict.effort import shown
from dpsim.predict.outcome import Outcome

#: by how many per cent steps were longer with shared links: Llama-3-8B with FSDP2 beside contexts
#: of two on 16 to 128 H100 0.2 to 1.0, deepseek-v3-h800 of 2,048 ranks 3.5
LONGER = (0.2, 3.5)


def warnings(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """That bandwidth is not shared where communicators meet, and why."""
    found = [one for one in outcomes if one.played and one.played.unshared]
    if found:
        ranks = ", ".join(sorted({f"{one.case.ranks:,}" for one in found}, key=len))
        longest = max(one.played.unshared for one in found if one.played)
        takes = shown(float(f"{longest:.0e}"))
        yield (
            f"on {ranks} ranks communicators that meet on links have them whole, each by itself: "
            f"sharing them takes some {takes} event by event (engine: event does it), and made "
            f"other steps {LONGER[0]:g} to {LONGER[1]:g} % longer"
        )
