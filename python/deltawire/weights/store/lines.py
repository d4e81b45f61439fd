"""How each tensor of a version is made: bytes to begin with, and patches in their order."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from deltawire import _core
from deltawire.errors import DeltawireError, corrupt
from deltawire.weights.store.manifest import StoredFile
from deltawire.weights.store.model_tensors import weights_digest
from deltawire.weights.store.stored_model import DTYPES, TensorDigest, read_model, read_patches


class OpenedFile(NamedTuple):
    """A file of a route.

    Attributes:
        file: what the manifest says of it.
        version: that it makes.
        data: its bytes.
    """

    file: StoredFile
    version: int
    data: np.ndarray


class DamagedFileError(Exception):
    """A file of the store that can't be used, and why."""

    def __init__(self, file: StoredFile, reason: str) -> None:
        super().__init__(reason)
        self.file = file


class WrongBaseError(Exception):
    """The reader's weights are not those that a patch was made from."""


class Step(NamedTuple):
    """A patch of a tensor, and the file that it is from."""

    patch: np.ndarray
    source: OpenedFile


class Line(NamedTuple):
    """How a tensor is made.

    Attributes:
        dtype: as safetensors spells it.
        shape: its dimensions.
        start: bytes to begin with; None for the reader's own weights.
        source: the file that `start` is from.
        steps: patches to be applied one after another.
    """

    dtype: str
    shape: tuple[int, ...]
    start: np.ndarray | None
    source: OpenedFile | None
    steps: tuple[Step, ...]

    def patch(self, name: str, weights: np.ndarray) -> None:
        """Applies all steps to `weights` in place.

        Raises:
            WrongBaseError: the reader's own weights are not the base; they are as they were.
            DamagedFileError: a step failed; the weights are those of the step before.
        """
        for number, step in enumerate(self.steps):
            self._run(name, number, _core.apply_patch, step.patch, weights, weights)

    def verify(self, name: str, weights: np.ndarray, scratch: np.ndarray) -> TensorDigest:
        """Checks all that `patch` would, without a write to `weights`.

        Args:
            name: the tensor's, for messages.
            weights: the reader's own.
            scratch: as many bytes; holds anything afterwards.

        Returns:
            what the tensor is when its steps are done.

        Raises:
            WrongBaseError, DamagedFileError: as `patch` does.
        """
        if self.start is None and len(self.steps) == 1:
            self._run(name, 0, _core.verify_patch, self.steps[0].patch, weights)
        elif self.steps:
            np.copyto(scratch, weights if self.start is None else self.start)
            self.patch(name, scratch)
        return self.result(weights)

    def before(self, weights: np.ndarray) -> TensorDigest:
        """What the reader's own tensor is, after a successful check."""
        if self.start is None and self.steps:
            digest = _core.inspect_patch(self.steps[0].patch).old_digest
        else:
            digest = weights_digest(self.dtype, weights)
        return TensorDigest(self.dtype, self.shape, digest)

    def result(self, weights: np.ndarray) -> TensorDigest:
        """What the tensor is when its steps, which were checked, are done."""
        if self.steps:
            digest = _core.inspect_patch(self.steps[-1].patch).new_digest
        else:
            digest = weights_digest(self.dtype, weights if self.start is None else self.start)
        return TensorDigest(self.dtype, self.shape, digest)

    def _run(self, name: str, number: int, call, patch, weights, *out) -> None:
        try:
            call(patch, weights, DTYPES[self.dtype].kind, *out)
        except DeltawireError as error:
            if error.code == "Mismatch" and self.start is None and number == 0:
                raise WrongBaseError(f"'{name}': {error}") from None
            source = self.steps[number].source
            raise DamagedFileError(source.file, f"'{name}': {error}") from None


def lines_of(
    opened: Sequence[OpenedFile], own: Mapping[str, tuple[str, tuple[int, ...]]]
) -> dict[str, Line]:
    """How the tensors of a route's last version are made.

    Args:
        opened: the route's files.
        own: dtypes and shapes of the reader's weights, where the route begins at them.

    Raises:
        DamagedFileError: a file that can't be read, or does not follow from those before it.
    """
    lines = {name: Line(*described, None, None, ()) for name, described in own.items()}
    for source in opened:
        try:
            lines = _next(lines, source)
        except DeltawireError as error:
            raise DamagedFileError(source.file, str(error)) from None
    return lines


def _next(lines: Mapping[str, Line], source: OpenedFile) -> dict[str, Line]:
    """The lines after one more file."""
    where = source.file.name
    if source.file.base is None:
        entries = read_model(where, source.data)
        return {name: Line(*entry, source, ()) for name, entry in entries.items()}
    read = read_patches(where, source.data)
    after = {name: Line(*entry, source, ()) for name, entry in read.full.items()}
    own = not any(line.steps or line.source for line in lines.values())
    for name in (*read.patches, *read.left_out(lines)):
        before = lines.get(name)
        if before is None and own:
            raise WrongBaseError(f"'{name}' is missing")  # in the reader's own weights
        if before is None:
            raise corrupt(f"{where} needs '{name}', which its base lacks")
        patch = read.patches.get(name)
        steps = () if patch is None else (Step(patch, source),)
        after[name] = before._replace(steps=(*before.steps, *steps))
    return after
