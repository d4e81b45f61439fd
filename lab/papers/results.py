"""The results of a paper's runs, in one JSON file that is whole at any moment."""

import json
import os
from pathlib import Path
from typing import Any

from lab.command.files import json_in_rows, processor, write_whole
from lab.papers.declaration import Metrics, Paper, Run

_DIGITS, _CURVE_DIGITS = 6, 4


class Results:
    """The finished runs of a `paper`. `add` replaces the file, so that a run that was cut leaves
    all those before it."""

    def __init__(self, paper: Paper, path: Path) -> None:
        """Raises ResultsError if the file is another paper's, or damaged."""
        self.paper, self._path = paper, path
        self._content = {"paper": paper.name, "machine": machine(), "runs": []}
        if path.exists():
            self._content = _read(path, paper.name)
        self._known = {_key_of(each): each for each in self._content["runs"]}

    @property
    def machine(self) -> str:
        """Where the runs were made."""
        return self._content["machine"]

    def of(self, key: tuple[str, str], seed: int, scale: str) -> dict | None:
        """A run's entry: seconds, load and metrics."""
        return self._known.get((*key, seed, scale))

    def all(self) -> list[dict]:
        """All entries, in the order in which they were made."""
        return self._content["runs"]

    def seeds(self, key: tuple[str, str], scale: str) -> list[int]:
        """The seeds with which a run was made."""
        return sorted(each[2] for each in self._known if each[:2] == key and each[3] == scale)

    def add(self, run: Run, seed: int, scale: str, seconds: float, metrics: Metrics) -> None:
        """Keeps a finished run."""
        entry = {
            **{"table": run.table, "cell": run.cell, "seed": seed, "scale": scale},
            **{"seconds": round(seconds, 2), "load": round(os.getloadavg()[0], 1)},
            "settings": run.settings,
            "metrics": _rounded(metrics),
        }
        self._content["runs"].append(entry)
        self._known[_key_of(entry)] = entry
        write_whole(self._path, json_in_rows(self._content, "runs"))


class ResultsError(Exception):
    """A file that isn't the paper's results: one line."""


def machine() -> str:
    """The processor and the number of cores, in words."""
    return f"{os.cpu_count()} cores of an {processor()}"


def _read(path: Path, name: str) -> dict:
    try:
        content = json.loads(path.read_text())
        found = content["paper"], content["machine"], content["runs"]
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise ResultsError(
            f"{path}: not results of lab.papers ({cause}); take another --out"
        ) from cause
    if found[0] != name:
        raise ResultsError(f"{path}: results of {found[0]}, not of {name}; take another --out")
    return content


def _key_of(entry: dict) -> tuple[str, str, int, str]:
    return entry["table"], entry["cell"], entry["seed"], entry["scale"]


def _rounded(value: Any, digits: int = _DIGITS) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each, _CURVE_DIGITS) for each in value]
    return value
