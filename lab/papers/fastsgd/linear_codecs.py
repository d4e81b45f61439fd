"""Cost and accuracy of each codec in linear training: the second table of `linear_check`."""

import dataclasses
import statistics
from collections.abc import Callable, Iterator

LOSSES = ("logistic", "squared", "hinge")  # the paper's three models
UNCOMPRESSED = "plain"
CODECS = (UNCOMPRESSED, "fastsgd", "fastsgd:tau=128", "logquant", "sketchml", "topk:k=1%", "3lc")
_HEAD = ("data", "loss", "codec", "held-out loss", "accuracy", "seconds", "KB a step", "smaller")


@dataclasses.dataclass(frozen=True)
class Trial:
    """One training; `train` of `measure` turns it into a report."""

    loss: str
    codec: str
    seed: int


def measure(
    name: str, codecs: list[str], seeds: int, train: Callable[[Trial], dict]
) -> Iterator[str]:
    """Yields lines of Markdown, one for each loss and codec, as they are finished.

    The figures are medians over `seeds` seeds, with the lowest and the highest; each seed holds out
    other rows.
    """
    for loss in LOSSES:
        for codec in codecs:
            trials = [Trial(loss, codec, seed) for seed in range(1, seeds + 1)]
            reports = [train(trial) for trial in trials]
            finals = [report["final"] for report in reports]
            sizes, ratios = zip(*map(bytes_of, reports), strict=True)
            cells = (
                *(name, loss, f"`{codec}`", spread(finals, "test_loss", 1, 4)),
                *(spread(finals, "accuracy", 100, 1), spread(finals, "seconds", 1, 2)),
                *(f"{statistics.median(sizes) / 1e3:.2f}", f"{statistics.median(ratios):.2f}"),
            )
            yield "| " + " | ".join(cells) + " |"


def bytes_of(report: dict) -> tuple[float, float]:
    """Bytes per step, and how many times fewer than with plain pairs, over all data epochs."""
    sent = [each["bytes_per_step"] for each in report["epochs"]]
    ratios = [each["times_smaller_than_plain_pairs"] or 0 for each in report["epochs"]]
    plain = sum(each * ratio for each, ratio in zip(sent, ratios, strict=True))
    return sum(sent) / len(sent), plain / sum(sent)


def head() -> list[str]:
    """The table's first two lines; "smaller" is relative to plain pairs."""
    return ["| " + " | ".join(_HEAD) + " |", "|" + "---|" * len(_HEAD)]


def spread(finals: list[dict], key: str, unit: float, digits: int) -> str:
    """ "median (lowest–highest)"; "-" for what these trainings don't have."""
    if any(each[key] is None for each in finals):
        return "-"
    values = [unit * each[key] for each in finals]
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"
