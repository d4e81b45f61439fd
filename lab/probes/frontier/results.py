"""Rows of `lab.probes.local_rounds`, from which the page is made: a JSON file for each size."""

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.command.files import write_whole
from lab.data.images import DataError
from lab.probes.local_rounds.methods import METHODS, SIZES, Method

_SETTING = re.compile(
    r"(?P<size>\S+) (?P<workers>\d+)x(?P<rounds>\d+)x(?P<steps>\d+)"
    r" lr=\S+ every=\d+ \S+(?: batch=\d+)?(?: bf16)?(?: pretraining=\d+)?"
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A method's training, with one seed or several.

    Attributes:
        name, method: of `local_rounds`.
        workers, rounds, steps: steps are a worker's in a round.
        losses: of held-out text after the last round, in nats a byte, in the order of seeds.
        bytes: that a worker sent, with the first seed, as the following.
        bits: of a parameter in one copy of a message.
        curve: (rounds, bytes of a worker, loss), the last one after all rounds.
    """

    name: str
    workers: int
    rounds: int
    steps: int
    losses: tuple[float, ...]
    bytes: float
    bits: float
    curve: list[tuple[int, float, float]]

    @property
    def method(self) -> Method:
        """How it exchanges."""
        return METHODS[self.name]

    @property
    def loss(self) -> float:
        """The median of the seeds."""
        return statistics.median(self.losses)

    @property
    def words(self) -> str:
        """Method, codec and length of a round."""
        codec = re.sub(r"^\w+\((.*)\)$", r"\1", self.method.spec)
        every = "" if self.method.every_step else f", {self.steps} steps"
        return f"{self.method.words} {codec}{every}"


@dataclasses.dataclass(frozen=True)
class Measured:
    """All rows of one size.

    Attributes:
        size: a name in SIZES.
        parameters: of the network.
        step_seconds: forward, backward and the optimizer's step of one worker.
        step_words: where that figure is from.
        rows: of all settings.
    """

    size: str
    parameters: int
    step_seconds: float
    step_words: str
    rows: list[Row]

    def of_equal_tokens(self) -> dict[int, list[Row]]:
        """The rows by the number of a worker's steps in all."""
        totals = dict.fromkeys(sorted(row.rounds * row.steps for row in self.rows))
        return {
            total: [row for row in self.rows if row.rounds * row.steps == total] for total in totals
        }


def read(path: Path) -> Measured:
    """Raises DataError."""
    try:
        kept = json.loads(path.read_text())
        rows = [
            row
            for words, finished in kept["settings"].items()
            for row in _rows(_setting(words), list(finished.values()))
        ]
        (parameters,) = {e["parameters"] for f in kept["settings"].values() for e in f.values()}
        step = kept["step_ms"] / 1e3
        return Measured(path.stem, parameters, step, kept["step_words"], rows)
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise DataError(f"{path}: no results of the frontier ({cause})") from cause


def add(folder: Path, rows_file: Path, step_ms: float | None, step_words: str | None) -> Path:
    """Adds a rows.json of `local_rounds` to its size's file in the folder. Raises DataError.

    Args:
        folder: of the files.
        rows_file: its rows replace those of the same setting, method and seed.
        step_ms, step_words: see `Measured`; None: as they are there.
    """
    try:
        given = json.loads(rows_file.read_text())
        (size,) = {_setting(words)["size"] for words in given}
    except (OSError, ValueError) as cause:
        raise DataError(f"{rows_file}: not the rows of one size ({cause})") from cause
    path = folder / f"{size}.json"
    kept = json.loads(path.read_text()) if path.exists() else {"settings": {}}
    for words, finished in given.items():
        kept["settings"].setdefault(words, {}).update(finished)
    if step_ms is not None:
        kept["step_ms"], kept["step_words"] = step_ms, step_words
    elif "step_ms" not in kept:
        raise DataError(f"{path} is new: give --step-ms and --step-words, too")
    write_whole(path, json.dumps(kept, indent=1) + "\n")
    return path


def _setting(words: str) -> re.Match:
    found = _SETTING.fullmatch(words)
    if found is None or found["size"] not in SIZES:
        raise ValueError(f"'{words}' is no setting")
    return found


def _rows(setting: re.Match, kept: list[dict]) -> Iterator[Row]:
    """In the order of METHODS; without those that diverged."""
    workers, rounds, steps = (int(setting[key]) for key in ("workers", "rounds", "steps"))
    if odd := {each["method"] for each in kept} - METHODS.keys():
        raise ValueError(f"no method is called {min(odd)}")
    for name in METHODS:
        own = sorted((e for e in kept if e["method"] == name), key=lambda each: each["seed"])
        losses = tuple(each["loss"] for each in own)
        if own and all(map(math.isfinite, losses)):
            first = own[0]
            curve = [tuple(point) for point in first["curve"]]
            yield Row(name, workers, rounds, steps, losses, first["bytes"], first["bits"], curve)


def frontier(rows: list[Row], cost: Callable[[Row], float]) -> list[Row]:
    """Those that no other one beats in both loss and cost, the cheapest first."""
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: (cost(row), row.loss)):
        if not found or row.loss < found[-1].loss:
            found.append(row)
    return found


def first_at(row: Row, loss: float, cost: Callable[[Row, int, float], float]) -> float | None:
    """What it costs a row to reach a loss: at the first held-out loss that is as low; None if none
    is. `cost` of (the row, rounds, bytes of a worker)."""
    return next((cost(row, done, sent) for done, sent, at in row.curve if at <= loss), None)


def cheapest(
    rows: list[Row], loss: float, cost: Callable[[Row, int, float], float]
) -> tuple[Row, float] | None:
    """The row that reaches the loss at the lowest cost, and that cost; None if none does."""
    reached = [(row, first_at(row, loss, cost)) for row in rows]
    return min(
        ((row, at) for row, at in reached if at is not None), key=lambda pair: pair[1], default=None
    )
