"""Finished rows in a run's folder, and the names under which it keeps what it may need again."""

import argparse
import fcntl
import json
import os
from pathlib import Path

from lab.probes.local_rounds.training import Setting

_ROWS = "rows.json"


def words_of(given: argparse.Namespace, setting: Setting) -> str:
    """What rows must have alike to be compared."""
    words = f"{given.parameters} {setting.workers}x{setting.rounds}x{setting.steps}"
    words += f" lr={setting.learning_rate:g} every={given.every} "
    return words + _network_of(given)


def start_name(given: argparse.Namespace, setting: Setting, seed: int) -> str:
    """The name of the file of first weights: what they depend on."""
    steps = setting.rounds * setting.steps
    words = f"{given.parameters} {setting.workers}x{steps} {_network_of(given)} seed {seed}.start"
    return words.replace(" ", "_")


def _network_of(given: argparse.Namespace) -> str:
    words = "cpu" + f" batch={given.batch}" * (given.batch is not None)
    words += " bf16" * given.bf16
    return words + f" pretraining={given.pretraining}" * (given.pretraining > 0)


def kept_rows(folder: Path, words: str) -> dict[str, dict]:
    """The finished rows of a setting, by method and seed."""
    return _all_rows(folder).get(words, {})


def keep(folder: Path, words: str, title: str, row: dict) -> None:
    """Adds a row to the file. Other processes may do so at any time: the folder is locked."""
    locked = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(locked, fcntl.LOCK_EX)
        kept = _all_rows(folder)
        kept.setdefault(words, {})[title] = row
        part = (folder / _ROWS).with_suffix(".part")
        part.write_text(json.dumps(kept))
        part.replace(folder / _ROWS)
    finally:
        os.close(locked)


def _all_rows(folder: Path) -> dict[str, dict[str, dict]]:
    file = folder / _ROWS
    return json.loads(file.read_text()) if file.exists() else {}
