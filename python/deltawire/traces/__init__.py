"""Reading traces: folders of recorded gradients (docs/reference/traces.md)."""

import dataclasses
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deltawire import foreign_json
from deltawire.errors import DeltawireError, corrupt, make_error
from deltawire.traces import files

PAGE = "trace.json"
FORMAT = 1
MOST_DIMENSIONS = 8
COUNT_LIMIT = 1 << 32  # a tensor has fewer elements
_FLOATS = (".npy", ".dw")


@dataclasses.dataclass(frozen=True)
class TracedTensor:
    """A tensor of a trace.

    Attributes:
        name: in the model; no two are equal.
        shape: of the parameter, row-major.
        pairs: its gradients are keys and values; the dimension is the product of `shape`.
    """

    name: str
    shape: tuple[int, ...]
    pairs: bool = False

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class TracedGradient:
    """A tensor's gradient in a step.

    Attributes:
        tensor: the tensor that it belongs to.
        values: float32, of the tensor's shape; with pairs, one dimension with a value for each key.
        keys: int64, strictly growing, positions in C order; None for dense gradients.
        significance: float32, of the shape of `values` (GComp, table 2; see
            `deltawire.Optimizer.significance`), or None if it was not recorded.
    """

    tensor: TracedTensor
    values: np.ndarray
    keys: np.ndarray | None = None
    significance: np.ndarray | None = None

    def dense(self) -> np.ndarray:
        """The gradient in the tensor's shape; for pairs a new array, 0 without a key."""
        if self.keys is None:
            return self.values
        values = np.zeros(self.tensor.count, np.float32)
        values[self.keys] = self.values
        return values.reshape(self.tensor.shape)


@dataclasses.dataclass(frozen=True)
class TraceStep:
    """A step of a trace.

    Attributes:
        number: the number of the optimizer's step, from 1.
        gradients: one for each of the trace's tensors, in their order; None if there was none.
    """

    number: int
    gradients: tuple[TracedGradient | None, ...]


class Trace:
    """A recorded training run; returned by `read_trace`. Iterating reads the steps one by one from
    their files: only the current step is in memory.

    Attributes:
        folder: of its files.
        model, optimizer, command: descriptions; empty if they were not recorded.
        tensors: all of them, in the model's order.
        step_numbers: of the recorded steps, increasing.

    Raises wherever arrays are read, DeltawireError: "Io" (a file is missing or can't be read),
    "Truncated", "Corrupt", "Mismatch" (an array of another shape, dtype or order, or one that lost
    bits), "UnsupportedVersion".

    Thread rule: any thread.
    """

    def __init__(self, folder: Path, page: dict) -> None:
        self.folder = folder
        self.model: str = _text(page, "model")
        self.optimizer: str = _text(page, "optimizer")
        self.command: str = _text(page, "command")
        self.tensors: tuple[TracedTensor, ...] = _tensors(page)
        self._entries = _steps(page, self.tensors)

    @property
    def step_numbers(self) -> tuple[int, ...]:
        """The numbers of the recorded steps, ascending."""
        return tuple(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TraceStep]:
        return map(self.load, self._entries)

    def load(self, number: int) -> TraceStep:
        """The step of that number, with all its arrays; KeyError where it was not recorded."""
        gradients = [
            None if entry is None else self._gradient(tensor, entry)
            for tensor, entry in zip(self.tensors, self._entries[number], strict=True)
        ]
        return TraceStep(number, tuple(gradients))

    def _gradient(self, tensor: TracedTensor, entry: dict) -> TracedGradient:
        keys, shape = None, tensor.shape
        if tensor.pairs:
            path = files.place_of(self.folder, entry["keys"], (".npy",))
            keys = files.read_keys(path, tensor.count)
            shape = keys.shape
        arrays = {
            name: files.read_floats(files.place_of(self.folder, entry[name], _FLOATS), shape)
            for name in ("values", "significance")
            if name in entry
        }
        return TracedGradient(tensor, keys=keys, **arrays)


def read_trace(folder: str | os.PathLike[str]) -> Trace:
    """Opens a trace (docs/reference/traces.md); checks trace.json now, arrays as they are read::

        for step in deltawire.read_trace("trace/"):
            for gradient in step.gradients: ...

    Raises:
        DeltawireError: "Io" (no trace.json: no trace, or one without a complete step), "Corrupt" (a
            trace.json that breaks a rule), "UnsupportedVersion" (another format).
    """
    folder = Path(folder)
    path = folder / PAGE
    try:
        content = path.read_bytes()
    except OSError as cause:
        raise make_error(
            "Io",
            f"{path}: can't be read ({cause.strerror or cause}): not a trace, or one that was "
            "broken off before a step was whole",
        ) from cause
    try:
        page = foreign_json.parse(content, parse_constant=_no_constant)
        _check_format(page)
        return Trace(folder, page)
    except ValueError as cause:
        if isinstance(cause, DeltawireError):
            raise
        raise corrupt(f"{path}: {cause}; record the trace again") from cause


class _PageError(ValueError):
    """A rule of docs/reference/traces.md that a trace.json breaks."""


def _no_constant(name: str) -> None:
    raise _PageError(f"{name} is not JSON")


def _check_format(page: object) -> None:
    if not isinstance(page, dict):
        raise _PageError("is not a JSON object")
    found = page.get("format")
    if not _is_count(found):
        raise _PageError("has no 'format' number")
    if found != FORMAT:
        raise make_error(
            "UnsupportedVersion",
            f"the trace has format {found}, and this version reads {FORMAT}; record it again, or "
            "update deltawire",
        )


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _text(page: dict, name: str) -> str:
    found = page.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _PageError(f"'{name}' is not a string")
    return found


def _list(page: dict, name: str) -> list:
    found = page.get(name)
    if not isinstance(found, list) or not found:
        raise _PageError(f"'{name}' is not a list, or is empty")
    return found


def _tensors(page: dict) -> tuple[TracedTensor, ...]:
    tensors = []
    for i, entry in enumerate(_list(page, "tensors")):
        where = f"tensor {i}"
        if not isinstance(entry, dict):
            raise _PageError(f"{where} is not an object")
        name, shape, pairs = entry.get("name"), entry.get("shape"), entry.get("pairs", False)
        if not isinstance(name, str) or not name:
            raise _PageError(f"{where} has no name")
        if not isinstance(shape, list) or not all(map(_is_count, shape)):
            raise _PageError(f"{where} ('{name}') has no shape, a list of counts")
        if len(shape) > MOST_DIMENSIONS or math.prod(shape) >= COUNT_LIMIT:
            raise _PageError(
                f"{where} ('{name}') has more than {MOST_DIMENSIONS} dimensions, or 2^32 elements "
                "or more"
            )
        if not isinstance(pairs, bool):
            raise _PageError(f"'pairs' of {where} ('{name}') is neither true nor false")
        tensors.append(TracedTensor(name, tuple(shape), pairs))
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise _PageError("two tensors have the same name")
    return tuple(tensors)


def _steps(page: dict, tensors: tuple[TracedTensor, ...]) -> dict[int, list[dict | None]]:
    steps: dict[int, list[dict | None]] = {}
    last = 0
    for i, step in enumerate(_list(page, "steps")):
        number = step.get("step") if isinstance(step, dict) else None
        if not _is_count(number) or number <= last:
            raise _PageError(f"entry {i} of 'steps' has no 'step' above {last}")
        entries = step.get("tensors")
        if not isinstance(entries, list) or len(entries) != len(tensors):
            raise _PageError(f"step {number} has no list of {len(tensors)} 'tensors'")
        for tensor, entry in zip(tensors, entries, strict=True):
            _check_entry(f"'{tensor.name}' in step {number}", tensor, entry)
        steps[number] = entries
        last = number
    return steps


def _check_entry(where: str, tensor: TracedTensor, entry: object) -> None:
    if entry is None:
        return
    if not isinstance(entry, dict):
        raise _PageError(f"{where} is neither an object nor null")
    if ("keys" in entry) != tensor.pairs:
        raise _PageError(f"{where} has {'no ' if tensor.pairs else ''}keys")
    if "values" not in entry:
        raise _PageError(f"{where} has no values")
