"""Measures a method on the corpus: bits, errors, what error feedback delivers, and speed."""

import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import deltawire
import numpy as np

from lab.traces.corpus import FORMAT, PAGE
from lab.traces.methods import Entry, Layout, Tensor

Figures = dict[str, float]
Step = list[Tensor]
_COLUMNS = 512  # of the matrix that speed is measured on
_SECONDS = 0.4  # of repetitions, for each direction
_SHORTEST = 0.01  # of calls that are timed as one
_FEWEST = 5
_LARGE_BLOCK = 1 << 24


class CorpusError(Exception):
    """A folder that is no corpus, or a method that breaks its promise: one line."""


@dataclasses.dataclass(frozen=True)
class Stream:
    """A trace of the corpus.

    Attributes:
        folder: its name.
        kind: "gradients" (single steps), "row" (consecutive ones) or "changes" (of weights).
        network, optimizer, dtype: of the training.
        sparse: its gradients are recorded as keys and values; methods get them dense.
        count: values of a step.
    """

    folder: str
    kind: str
    network: str
    optimizer: str
    dtype: str
    sparse: bool
    count: int

    @property
    def group(self) -> str:
        """What figures are averaged over."""
        if self.sparse:
            return f"sparse {self.kind}"
        return self.kind if self.dtype == "float32" else self.dtype


class Corpus:
    """A corpus on disk.

    Attributes:
        digest: of what methods are given.
        made_by: in words.
        streams: all traces.
    """

    def __init__(self, folder: Path) -> None:
        """Raises CorpusError."""
        try:
            page = json.loads((folder / PAGE).read_text())
            if page["format"] != FORMAT:
                raise CorpusError(f"{folder}: has format {page['format']}, not {FORMAT}")
            self.digest, self.made_by = page["digest"], page["made_by"]
            self.streams = [
                Stream(
                    **{name: each[name] for name in ("folder", "kind", "network", "optimizer")},
                    dtype=each["dtype"],
                    sparse=each["network"] == "logistic",
                    count=each["count"],
                )
                for each in page["traces"]
            ]
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise CorpusError(
                f"{folder}: no corpus ({cause}); make one: python -m lab.traces.corpus"
            ) from cause
        self._folder = folder

    def steps(self, stream: Stream) -> Iterator[Step]:
        """The stream's steps."""
        for step in deltawire.read_trace(self._folder / stream.folder):
            yield [
                Tensor(
                    Layout(each.tensor.name, each.tensor.shape, stream.dtype),
                    np.ascontiguousarray(each.dense()),
                    each.significance if each.keys is None else None,
                )
                for each in step.gradients
                if each is not None
            ]


def lowest_bits(corpus: Corpus, group: str) -> float:
    """The share of a group's values whose last bit as float32 is 1."""
    ones = values = 0
    for stream in corpus.streams:
        if stream.group == group:
            for step in corpus.steps(stream):
                flat = _flat(step)
                ones, values = ones + int((flat.view(np.uint32) & 1).sum()), values + flat.size
    return ones / values if values else 0.0


def measure(entry: Entry, corpus: Corpus, stream: Stream) -> Figures:
    """A method's figures on a stream. Raises CorpusError if a lossless method loses something, or
    arrays come back in other shapes."""
    if stream.kind == "row":
        return _in_a_row(entry, corpus.steps(stream))
    bits = values = 0
    errors, cosines = [], []
    for step in corpus.steps(stream):
        method, layouts = entry.make(), [each.layout for each in step]
        message = method.encode(step)
        x, y = _flat(step), _arrived(entry, method, message, layouts)
        if entry.lossless and x.tobytes() != y.tobytes():
            raise CorpusError(f"{entry.name} is lossless, and changed {stream.folder}")
        bits, values = bits + 8 * len(message), values + x.size
        errors.append(_relative(x, y))
        cosines.append(_cosine(x, y))
    return {
        "bits": bits / values,
        "error": statistics.fmean(errors),
        "cosine": statistics.fmean(cosines),
    }


def _in_a_row(entry: Entry, steps: Iterator[Step]) -> Figures:
    """All steps through one method: bits, and the sums of what went in and what came out."""
    method = entry.make()
    bits = values = 0
    given = came = np.zeros(0)
    for step in steps:
        layouts = [each.layout for each in step]
        message = method.encode(step)
        x, y = _flat(step), _arrived(entry, method, message, layouts)
        if not values:
            given, came = np.zeros(x.size), np.zeros(x.size)
        given += x
        came += y
        bits, values = bits + 8 * len(message), values + x.size
    return {
        "bits": bits / values,
        "error": _relative(given, came),
        "delivered": float(given @ came / (given @ given)),
    }


def _flat(step: Step) -> np.ndarray:
    return np.concatenate([each.values.ravel() for each in step])


def _arrived(entry: Entry, method: object, message: bytes, layouts: Sequence[Layout]) -> np.ndarray:
    arrays = method.decode(message, layouts)
    if [each.shape for each in arrays] != [each.shape for each in layouts]:
        raise CorpusError(f"{entry.name} decodes arrays of other shapes than went in")
    return np.concatenate([each.ravel() for each in arrays]).astype(np.float32, copy=False)


def _relative(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x.astype(np.float64), y.astype(np.float64)
    return float(np.linalg.norm(y - x) / np.linalg.norm(x))


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x.astype(np.float64), y.astype(np.float64)
    norms = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / norms) if norms else 0.0


def speed_step(corpus: Corpus) -> Step:
    """What speed is measured on: the first steps of all dense float32 gradients, as a matrix."""
    parts, seen = [], []
    for stream in corpus.streams:
        if stream.group == "gradients":
            for tensor in next(corpus.steps(stream)):
                known = tensor.significance is not None
                parts.append(tensor.values.ravel())
                seen.append(tensor.significance.ravel() if known else np.zeros(tensor.values.size))
    if not parts:
        raise CorpusError("the corpus has no dense float32 gradients to measure speed on")
    values, significance = np.concatenate(parts), np.concatenate(seen).astype(np.float32)
    rows = max(1, values.size // _COLUMNS)
    shape = (rows, values.size // rows)
    count = shape[0] * shape[1]
    return [
        Tensor(
            Layout("bucket", shape),
            values[:count].reshape(shape).copy(),
            significance[:count].reshape(shape).copy(),
        )
    ]


def speed(entry: Entry, step: Step) -> Figures:
    """GB/s of float32 values, by the processor time of all threads: medians."""
    method, layouts = entry.make(), [each.layout for each in step]
    size = sum(each.values.nbytes for each in step)
    # A large block that was freed makes malloc keep smaller ones: otherwise the first method, and
    # whichever has the largest arrays, would pay for fresh pages in every call.
    bytearray(_LARGE_BLOCK)
    message = method.encode(step)
    return {
        "encode_gb_s": size / 1e9 / _median_time(lambda: method.encode(step)),
        "decode_gb_s": size / 1e9 / _median_time(lambda: method.decode(message, layouts)),
    }


def _median_time(work: Callable[[], object]) -> float:
    """Seconds of one call. Reading the clock may take as long as a fast call, so that several
    calls are timed as one."""
    calls, times, total = 1, [], 0.0
    while len(times) < _FEWEST or total < _SECONDS:
        began = time.process_time_ns()
        for _ in range(calls):
            work()
        spent = (time.process_time_ns() - began) / 1e9
        if spent < _SHORTEST and total < _SECONDS:
            calls, total = 2 * calls, total + spent
            continue
        times.append(spent / calls)
        total += spent
    return statistics.median(times)
