"""Writes traces step by step (docs/reference/traces.md): whole steps survive any failure."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from deltawire import _core, new_file
from deltawire.errors import invalid, make_error
from deltawire.traces import (
    COUNT_LIMIT,
    FORMAT,
    MOST_DIMENSIONS,
    PAGE,
    TracedGradient,
    TracedTensor,
    files,
)


class TraceWriter:
    """Writes a trace. A step's files are written under temporary names and renamed when all are
    complete; then a new trace.json atomically replaces the old one. So the folder always holds
    complete steps, even if the program is killed.

    Args:
        folder: created if missing; otherwise it must be empty.
        tensors: in the model's order. A tensor's first gradient decides whether it has pairs; later
            gradients in the other form are converted, which changes no value.
        words: the fields "model", "optimizer", "command"; may be changed until the first step.
        spec: a lossless codec, for .dw files where they are smaller than .npy; None: only .npy.

    Raises:
        InvalidArgumentError (a ValueError): the folder isn't empty or not a folder; a lossy spec;
            tensors that the format can't hold.
        DeltawireError ("Io"): the folder can't be created.

    Thread rule: one thread at a time.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        tensors: Iterable[TracedTensor],
        words: dict[str, str],
        spec: str | None = None,
    ) -> None:
        if spec is not None and not _core.is_lossless(spec):
            raise invalid(
                f"'{spec}' loses bits, and a trace must not; use gcomp:lossless=on, or leave it out"
            )
        self.folder = Path(folder)
        self.words = words
        self.bytes_written = 0
        self._tensors = list(tensors)
        self._spec = spec
        self._steps: list[dict] = []
        _check_tensors(self._tensors)
        _make_empty(self.folder)

    @property
    def step_numbers(self) -> tuple[int, ...]:
        """The numbers of the written steps."""
        return tuple(step["step"] for step in self._steps)

    def add(self, number: int, gradients: Iterable[TracedGradient | None]) -> None:
        """Writes a step, whose number must be above the previous ones: a gradient for each tensor,
        taken from `gradients` one by one.

        Raises DeltawireError ("Io") if it can't be written, e.g. because the disk is full; earlier
        steps remain, as they do after any other exception, also KeyboardInterrupt.
        """
        name = f"{number:06d}"
        partial = self.folder / f".{name}.partial"
        tensors, entries, written = list(self._tensors), [], 0
        seen = {i for step in self._steps for i, each in enumerate(step["tensors"]) if each}
        made = False
        try:
            partial.mkdir()
            made = True
            for i, gradient in enumerate(gradients):
                entry = None
                if gradient is not None:
                    if i not in seen:
                        tensors[i] = TracedTensor(
                            tensors[i].name, tensors[i].shape, gradient.keys is not None
                        )
                    gradient = in_form_of(tensors[i], gradient)
                    entry, size = self._write(partial, i, gradient)
                    entry = {kind: f"{name}/{file}" for kind, file in entry.items()}
                    written += size
                entries.append(entry)
            os.rename(partial, self.folder / name)
            # The step's files are complete now: a later trace.json may name them even if this one
            # can't be written.
            self._tensors = tensors
            self._steps.append({"step": number, "tensors": entries})
            self.bytes_written += written
            self._write_page()
        except OSError as cause:
            count = len([each for each in self.step_numbers if each != number])
            raise make_error(
                "Io",
                f"step {number} can't be written to the trace {self.folder} "
                f"({cause.strerror or cause}); the {count} steps before it are whole; make room, "
                "or record fewer steps",
            ) from cause
        finally:
            if made:  # otherwise it is somebody else's
                with contextlib.suppress(OSError):
                    shutil.rmtree(partial, ignore_errors=True)

    def _write(self, folder: Path, i: int, gradient: TracedGradient) -> tuple[dict, int]:
        written = {"values": files.write_floats(folder, str(i), gradient.values, self._spec)}
        if gradient.keys is not None:
            written["keys"] = files.write_keys(folder, f"{i}.keys", gradient.keys)
        if gradient.significance is not None:
            written["significance"] = files.write_floats(
                folder, f"{i}.significance", gradient.significance, self._spec
            )
        names = {kind: name for kind, (name, _) in written.items()}
        return names, sum(size for _, size in written.values())

    def _write_page(self) -> None:
        tensors = [
            {"name": each.name, "shape": list(each.shape)} | ({"pairs": True} if each.pairs else {})
            for each in self._tensors
        ]
        words = {
            name: self.words[name]
            for name in ("model", "optimizer", "command")
            if name in self.words
        }
        lines = [f"  {json.dumps(name)}: {json.dumps(text)}," for name, text in words.items()]
        page = "\n".join(
            ["{", f'  "format": {FORMAT},', *lines, '  "tensors": [']
            + [",\n".join(f"    {json.dumps(each)}" for each in tensors)]
            + ["  ],", '  "steps": [']
            + [",\n".join(_step_text(step) for step in self._steps)]
            + ["  ]", "}", ""]
        )
        new_file.replace(self.folder / PAGE, [page.encode()])


def in_form_of(tensor: TracedTensor, gradient: TracedGradient) -> TracedGradient:
    """The same gradient as pairs if the tensor has pairs, otherwise dense. Elements without a key
    have significance 0, which means unknown, so that nothing is cut."""
    if tensor.pairs == (gradient.keys is not None):
        return TracedGradient(tensor, gradient.values, gradient.keys, gradient.significance)
    significance = gradient.significance
    if tensor.pairs:
        keys = np.arange(tensor.count, dtype=np.int64)
        flat = None if significance is None else significance.reshape(-1)
        return TracedGradient(tensor, gradient.values.reshape(-1), keys, flat)
    if significance is not None:
        significance = TracedGradient(tensor, significance, gradient.keys).dense()
    return TracedGradient(tensor, gradient.dense(), None, significance)


def _step_text(step: dict) -> str:
    entries = ",\n".join(f"      {json.dumps(each)}" for each in step["tensors"])
    return f'    {{"step": {step["step"]}, "tensors": [\n{entries}\n    ]}}'


def _check_tensors(tensors: list[TracedTensor]) -> None:
    if not tensors or len({tensor.name for tensor in tensors}) != len(tensors):
        raise invalid("a trace needs tensors, each with a name of its own")
    for tensor in tensors:
        if len(tensor.shape) > MOST_DIMENSIONS or tensor.count >= COUNT_LIMIT or not tensor.name:
            raise invalid(
                f"the tensor '{tensor.name}' of shape {tensor.shape} can't be recorded: a trace "
                f"has names, at most {MOST_DIMENSIONS} dimensions and fewer than 2^32 elements"
            )


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = next(folder.iterdir(), None) is None
    except (FileExistsError, NotADirectoryError) as cause:
        raise invalid(f"{folder} is a file; give a new folder for the trace") from cause
    except OSError as cause:
        raise make_error(
            "Io", f"the folder {folder} can't be made ({cause.strerror or cause})"
        ) from cause
    if not empty:
        raise invalid(
            f"the folder {folder} is not empty; give a new one for the trace, or remove what is in "
            "it"
        )
