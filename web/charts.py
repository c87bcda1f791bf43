"""Small charts of the last hour, drawn on the server: one path of bars, with its text beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from celeriac.sessions.rates import Outcome, Rate, Work

__all__ = ["HEIGHT", "Chart", "charts_of"]

HEIGHT = 40
"""Of the drawing, in its own units; each minute is two units wide."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart."""

    title: str
    total: int
    """In the last hour."""
    most: int
    """In one minute."""
    path: str
    """The bars, as the data of an SVG path; empty where there are none."""
    width: int
    tone: str
    """``good``, ``warn``, ``bad`` or ``unknown``, as for chips."""

    @property
    def words(self) -> str:
        """What the chart shows, for those who do not see it."""
        if self.total == 0:
            return f"{self.title}: none in the last hour"
        return f"{self.title}: {self.total:,} in the last hour, at most {self.most:,} a minute"


_CHARTS: tuple[tuple[str, tuple[Work, ...], tuple[Outcome, ...], str], ...] = (
    ("Model calls", (Work.MODEL,), tuple(Outcome), "good"),
    ("Tool calls", (Work.TOOL,), tuple(Outcome), "good"),
    ("Tried again", tuple(Work), (Outcome.RETRIED,), "warn"),
    ("Failed", tuple(Work), (Outcome.FAILED,), "bad"),
    ("Unknown", tuple(Work), (Outcome.UNKNOWN,), "unknown"),
)


def charts_of(rates: Sequence[Rate]) -> Iterator[Chart]:
    """Draw the charts of the operations page.

    Args:
        rates: What ended in the last hour.
    """
    for title, works, outcomes, tone in _CHARTS:
        chosen = [
            rate.per_minute for rate in rates if rate.work in works and rate.outcome in outcomes
        ]
        counts = [sum(column) for column in zip(*chosen, strict=True)]
        most = max(counts, default=0)
        path = "".join(_bar(index, count, most) for index, count in enumerate(counts) if count)
        yield Chart(title, sum(counts), most, path, 2 * len(counts), tone)


def _bar(index: int, count: int, most: int) -> str:
    # One among thousands is still to be seen.
    height = max(2.0, round(HEIGHT * count / most, 1))
    return f"M{2 * index} {HEIGHT}v-{height:g}h1.6v{height:g}z"
