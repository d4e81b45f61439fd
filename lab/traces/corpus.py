"""Writes the corpus: gradients and changes of weights of six networks, to compare methods on.

    DELTAWIRE_DATA=... python -m lab.traces.corpus --out out/corpus

Its folders are traces, and corpus.json lists them: docs/reference/corpus.md. Seeds are fixed, and
all is done by one thread: the same command gives the same bytes on the same machine and version of
PyTorch, and nearly the same elsewhere.
"""

import argparse
import dataclasses
import hashlib
import json
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import deltawire
import deltawire.torch
import torch
from deltawire import DeltawireError, TracedGradient, TracedTensor
from deltawire.traces.writer import TraceWriter

from lab.command.program import main_of, make_parser
from lab.data import texts
from lab.data.images import DataError, data_folder
from lab.models.networks import WordLSTM
from lab.models.trainings import Training, make_optimizer, make_training, pieces_of

PAGE, FORMAT = "corpus.json", 1
SEED = 1
_LINE, _LINES, _UNITS = 32, 16, 64  # of charlstm: characters of a line, lines of a batch


@dataclasses.dataclass(frozen=True)
class Phases:
    """When a training is recorded: numbers of steps, counted from 1.

    Attributes:
        early, middle, late: whose gradients are recorded; `late` ends the training.
        row: how many steps after `middle` are recorded one after the other.
        local: over how many steps up to each phase (after it, where it is too early) a change of
            the weights is recorded.
    """

    early: int = 5
    middle: int = 300
    late: int = 1000
    row: int = 20
    local: int = 20

    @property
    def moments(self) -> tuple[int, int, int]:
        """The three steps."""
        return self.early, self.middle, self.late


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A training, and what is recorded of it.

    Attributes:
        network, optimizer: of lab.models.trainings; "charlstm" is below.
        row: whether consecutive steps are recorded too.
        changes: whether changes of the weights are recorded too.
        dtype: of weights and gradients.
    """

    network: str
    optimizer: str
    row: bool = False
    changes: bool = False
    dtype: str = "float32"

    @property
    def name(self) -> str:
        """The folder's."""
        return f"{self.network}-{self.optimizer}" + ("-bf16" if self.dtype == "bfloat16" else "")


RECIPES = (
    Recipe("lenet5", "sgd", row=True, changes=True),
    Recipe("lenet5", "adam"),
    Recipe("resnet20", "sgd", row=True),
    Recipe("resnet20", "adam"),
    Recipe("charlstm", "sgd", row=True),
    Recipe("charlstm", "adam"),
    Recipe("lstm", "sgd", row=True),
    Recipe("lstm", "adam"),
    Recipe("transformer", "sgd"),
    Recipe("transformer", "adam", row=True, changes=True),
    Recipe("logistic", "sgd", row=True),
    Recipe("logistic", "adam"),
    Recipe("lenet5", "sgd", dtype="bfloat16"),
    Recipe("transformer", "adam", dtype="bfloat16"),
)


def _charlstm(seed: int) -> Training:
    """A character-level LSTM of two layers on Shakespeare."""
    characters, kinds = texts.read_characters(data_folder())
    batch_at = pieces_of(torch.from_numpy(characters), _LINE, _LINES, seed, dim=0)
    network = WordLSTM(kinds, _UNITS, _UNITS, 2)
    words = (
        f"LSTM of 2 layers of {_UNITS} units on Shakespeare, character by character, batches of "
        f"{_LINES} x {_LINE}"
    )
    return Training(words, network, batch_at, {"sgd": 1.0, "adam": 0.004})


def make(recipe: Recipe) -> Training:
    """A recipe's training, newly made. Raises DataError."""
    if recipe.network == "charlstm":
        torch.manual_seed(SEED)
        training = _charlstm(SEED)
    else:
        training = make_training(recipe.network, "small", SEED)
    training.network.to(getattr(torch, recipe.dtype))
    return training


def _loss(training: Training, step: int, dtype: torch.dtype) -> torch.Tensor:
    """The loss of a step's batch, in float32 whatever the network computes in."""
    arguments, targets = training.batch_at(step)
    outputs = training.network(
        *(each.to(dtype) if each.is_floating_point() else each for each in arguments)
    )
    return training.criterion(
        outputs.flatten(0, targets.dim() - 1).to(torch.float32), targets.flatten()
    )


class _Changes:
    """Records by how much the weights change over some steps: what local steps exchange."""

    def __init__(self, folder: Path, network: torch.nn.Module, words: dict, phases: Phases) -> None:
        self._named = list(network.named_parameters())
        self._tensors = [TracedTensor(name, tuple(each.shape)) for name, each in self._named]
        self._writer = TraceWriter(folder, self._tensors, words)
        self._ends = {max(step, phases.local) for step in phases.moments}
        self._begins = {end - phases.local for end in self._ends}
        self._before: list[torch.Tensor] = []

    def after(self, step: int) -> None:
        """Called after each step, and with 0 before the first."""
        if step in self._ends:
            changes = [
                TracedGradient(tensor, (each.detach() - before).numpy())
                for tensor, (_, each), before in zip(
                    self._tensors, self._named, self._before, strict=True
                )
            ]
            self._writer.add(step, changes)
        if step in self._begins:
            self._before = [each.detach().clone() for _, each in self._named]


def _recordings(
    recipe: Recipe, training: Training, optimizer: torch.optim.Optimizer, out: Path, phases: Phases
) -> Iterator[tuple[str, str]]:
    """Begins to record gradients; yields the folders and the kind of what is in them."""
    known = recipe.dtype == "float32" and (recipe.network, recipe.optimizer) != ("logistic", "adam")
    folders = {recipe.name: (phases.moments, None if known else False)}
    if recipe.row:
        first = phases.middle + 1
        folders[f"{recipe.name}-row"] = (range(first, first + phases.row), False)
    for folder, (steps, significance) in folders.items():
        deltawire.torch.trace(
            training.network,
            out / folder,
            optimizer=optimizer,
            steps=steps,
            significance=significance,
            name=training.words,
        )
        yield folder, "row" if folder.endswith("-row") else "gradients"


def record(recipe: Recipe, out: Path, phases: Phases) -> list[dict]:
    """Trains, and writes the recipe's traces; returns their entries of corpus.json. Raises
    DataError, DeltawireError."""
    began, training = time.monotonic(), make(recipe)
    optimizer = make_optimizer(training, recipe.optimizer)
    folders = dict(_recordings(recipe, training, optimizer, out, phases))
    changes = None
    if recipe.changes:
        folder = f"{recipe.name}-changes"
        text = f"{training.words}: change of the weights over {phases.local} steps"
        words = {"model": text, "optimizer": recipe.optimizer}
        changes = _Changes(out / folder, training.network, words, phases)
        changes.after(0)
        folders[folder] = "changes"
    for step in range(1, phases.late + 1):
        optimizer.zero_grad()
        loss = _loss(training, step - 1, getattr(torch, recipe.dtype))
        loss.backward()
        optimizer.step()
        if changes is not None:
            changes.after(step)
    print(f"{recipe.name}: loss {loss.item():.3f}, {time.monotonic() - began:.0f} s", flush=True)
    count = sum(parameter.numel() for parameter in training.network.parameters())
    shared = {"network": recipe.network, "optimizer": recipe.optimizer, "dtype": recipe.dtype}
    return [
        {"folder": folder, "kind": kind, **shared, "words": training.words, "count": count}
        for folder, kind in folders.items()
    ]


def digest_of(folder: Path) -> str:
    """SHA-256 of the values and keys of all traces: what methods are given."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*/*/*.npy")):
        if not path.name.endswith(".significance.npy"):
            found.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def write(out: Path, recipes: tuple[Recipe, ...], phases: Phases) -> int:
    """Writes the corpus to a new or empty folder; returns its bytes. Raises DataError,
    DeltawireError."""
    traces = [entry for recipe in recipes for entry in record(recipe, out, phases)]
    for trace in out.glob("*/trace.json"):  # a command line has paths of the machine
        page = json.loads(trace.read_text())
        page["command"] = "python -m lab.traces.corpus"
        trace.write_text(json.dumps(page) + "\n")
    page = {
        "format": FORMAT,
        "digest": digest_of(out),
        "made_by": f"PyTorch {torch.__version__}, {platform.machine()}, seed {SEED}",
        "traces": traces,
    }
    (out / PAGE).write_text(json.dumps(page, indent=1) + "\n")
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.traces.corpus", __doc__)
    parser.add_argument("--out", type=Path, default=Path("out/corpus"), help="default out/corpus")
    return parser.parse_args(arguments)


def run(given: argparse.Namespace) -> None:
    """Writes the corpus."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    size = write(given.out, RECIPES, Phases())
    print(f"{given.out}: {size / 2**20:.1f} MiB")


main = main_of("lab.traces.corpus", parse, run, DataError, DeltawireError)


if __name__ == "__main__":
    sys.exit(main())
