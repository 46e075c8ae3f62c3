"""Points of which less is played, for communicators meet on links: what answers say of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsim.predict.effort import shown
from dpsim.predict.meeting import HARDLY
from dpsim.predict.outcome import Outcome


def warnings(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """That bandwidth is not shared where communicators meet, or in fewer steps, and why."""
    for one in outcomes:
        if one.played and one.played.few:
            steps = one.case.scenario.variability.steps
            yield (
                f"on {one.case.ranks:,} ranks {one.played.few} of {steps} random steps were "
                "played: communicators share links there (engine: event plays all)"
            )
    found = [one for one in outcomes if one.played and one.played.unshared]
    if found:
        ranks = ", ".join(sorted({f"{one.case.ranks:,}" for one in found}, key=len))
        longest = max(one.played.unshared for one in found if one.played)
        takes = shown(float(f"{longest:.0e}"))
        yield (
            f"on {ranks} ranks communicators that meet on links have them whole, each by itself: "
            f"sharing them takes some {takes} event by event (engine: event does it); on fewer "
            f"ranks it makes a step at most {HARDLY - 1.0:.0%} longer"
        )
