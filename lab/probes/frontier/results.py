"""Rows of `lab.probes.local_rounds`, from which the page is made: a JSON file for each size."""

import dataclasses
import json
import re
from pathlib import Path

from lab.data.images import DataError
from lab.probes.local_rounds.methods import METHODS, SIZES, Method

_SETTING = re.compile(
    r"(?P<size>\S+) (?P<workers>\d+)x(?P<rounds>\d+)x(?P<steps>\d+) lr=(?P<lr>\S+) every=\d+ \S+"
)


@dataclasses.dataclass(frozen=True)
class Row:
    """A method's training with one seed.

    Attributes:
        name, method: of `local_rounds`.
        seed: of the first weights and the batches.
        workers, rounds, steps: steps are a worker's in a round.
        loss: of held-out text after the last round, in nats a byte.
        bytes: that a worker sent.
        bits: of a parameter in one copy of a message.
        curve: (rounds, bytes of a worker, loss), the last one after all rounds.
    """

    name: str
    seed: int
    workers: int
    rounds: int
    steps: int
    loss: float
    bytes: float
    bits: float
    curve: list[tuple[int, float, float]]

    @property
    def method(self) -> Method:
        """How it exchanges."""
        return METHODS[self.name]

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
            _row(_setting(words), each)
            for words, finished in kept["settings"].items()
            for each in finished.values()
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
    kept["step_ms"] = kept.get("step_ms") if step_ms is None else step_ms
    kept["step_words"] = kept.get("step_words") if step_words is None else step_words
    if kept["step_ms"] is None or kept["step_words"] is None:
        raise DataError(f"{path} is new: give --step-ms and --step-words, too")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(kept, indent=1) + "\n")
    part.replace(path)
    return path


def _setting(words: str) -> re.Match:
    found = _SETTING.fullmatch(words)
    if found is None or found["size"] not in SIZES:
        raise ValueError(f"'{words}' is no setting")
    return found


def _row(setting: re.Match, kept: dict) -> Row:
    workers, rounds, steps = (int(setting[key]) for key in ("workers", "rounds", "steps"))
    name, curve = kept["method"], [tuple(point) for point in kept["curve"]]
    METHODS[name]  # a KeyError names one that is gone
    loss, sent, bits = kept["loss"], kept["bytes"], kept["bits"]
    return Row(name, kept["seed"], workers, rounds, steps, loss, sent, bits, curve)
