"""Whether our numbers reach the paper's."""

import dataclasses
import statistics

from lab.papers.declaration import Number


@dataclasses.dataclass
class Verdict:
    """Of a table: how many of the paper's numbers are reached, near, and not.

    Attributes:
        shown: numbers of the paper, with or without a direction that is better.
        count: those with a direction, which are judged.
        absent: those of them that have no number of ours.
        missed: how far off the others are, by the label of their row.
    """

    shown: int = 0
    count: int = 0
    reached: int = 0
    near: int = 0
    absent: int = 0
    missed: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def add(self, number: Number, values: list[float], label: str, head: str) -> None:
        """Counts a number of the paper and ours, of each seed, in the column `head`."""
        self.shown += 1
        if number.better is None:
            return
        self.count += 1
        if not values:
            self.absent += 1
        elif is_reached(number, values):
            self.reached += 1
        elif is_near(number, values):
            self.near += 1
        else:
            self.missed.setdefault(label, []).append(f"{head} {_distance(number, values)}")

    def in_words(self) -> str:
        """A paragraph."""
        if self.count == 0 and self.shown > 0:
            return "No verdict: the scales differ too much."
        if self.count == 0:
            return "The paper has no numbers for these cells in its text, so there is no verdict."
        text = f"**Verdict**: {self.reached} of {self.count} numbers are reached, "
        text += f"{self.near} are near."
        if self.missed:
            rows = (f"{label}: {', '.join(parts)}" for label, parts in self.missed.items())
            text += f" Not reached: {'; '.join(rows)}."
        return text + (f" Without a number of ours: {self.absent}." if self.absent else "")


def is_reached(number: Number, values: list[float]) -> bool:
    """Whether the median is at least as good as the paper's number, or that is inside the
    spread."""
    assert number.paper is not None
    median = statistics.median(values)
    better = median >= number.paper if number.better == "higher" else median <= number.paper
    return better or min(values) <= number.paper <= max(values)


def is_near(number: Number, values: list[float]) -> bool:
    """Whether the median is no further from the paper's number than what counts as near."""
    assert number.paper is not None
    off = abs(statistics.median(values) - number.paper)
    return off <= number.near * (1 if number.how == "value-base" else abs(number.paper))


def _distance(number: Number, values: list[float]) -> str:
    median, paper = statistics.median(values), number.paper
    assert paper is not None
    if number.how == "value-base" or median <= 0 or paper <= 0:
        return f"off by {median - paper:+.3g}"
    times, way = max(median / paper, paper / median), "lower" if median < paper else "higher"
    return f"{times:.3g} times {way}" if times < 100 else f"{times:,.0f} times {way}"
