"""The state of a ParameterServer's rank, in checkpoints and snapshots."""

import errno
import logging
import os
import struct
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
import torch

from deltawire import _core
from deltawire.errors import DeltawireError, check_state_given, invalid, make_error
from deltawire.new_file import sync_folder
from deltawire.session import leaving
from deltawire.torch.core import bootstrap

logger = logging.getLogger("deltawire")

_VERSION = 1
_LENGTH = struct.Struct("<Q")
# How the core's errors end when the disk, a quota or a limit is full, which can be fixed meanwhile.
_NO_ROOM = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)))

Core = _core.ParameterServer | _core.ParameterWorker


def steps_of(core: Core) -> int:
    """Steps in its parameters, including those before a loaded state."""
    return core.steps if isinstance(core, _core.ParameterServer) else core.step


def state_of(core: Core, place: dict[str, Any]) -> dict[str, Any]:
    """The state for a checkpoint; `place` says where it belongs."""
    state = torch.frombuffer(bytearray(core.save()), dtype=torch.uint8)
    return {"version": _VERSION, **place, "step": steps_of(core), "state": state}


def load(core: Core, state: dict[str, Any], place: dict[str, Any]) -> str:
    """Restores what `state_of` returned, or raises and changes nothing. Returns a text that must be
    equal on all ranks."""
    due = {"version": _VERSION, **place}
    check_state_given(state, (*due, "step", "state"))
    for key, value in due.items():
        if state[key] != value:
            raise invalid(
                f"the state has {key} {state[key]}, but this ParameterServer has {value}; load the "
                "state of the same job and rank"
            )
    saved = state["state"]
    if not isinstance(saved, torch.Tensor) or saved.dtype != torch.uint8:
        raise invalid("the state's 'state' is not a uint8 tensor")
    core.load(saved.cpu().contiguous().numpy())
    return f"step {state['step']}"


class Snapshots:
    """A rank's snapshots in a folder: a server's whole state; a worker's residuals and the module's
    buffers.

    Args:
        folder: created if missing; local or shared.
        every: steps between two snapshots.
        place: (rank, number of servers).
        settings: what must be the same when training resumes.
        buffers: those of the module, which are each worker's own.

    Attributes:
        error: why the newest snapshot could not be written, or None.
    """

    def __init__(
        self,
        folder: str | PathLike,
        every: int,
        place: tuple[int, int],
        settings: str,
        buffers: list[torch.Tensor],
    ) -> None:
        self._folder = os.fspath(folder)
        self._every = every
        self._rank, self._servers = place
        self._buffers = buffers
        self._newest: int | None = None
        self.error: str | None = None
        self._files = _core.SnapshotPlace(self._folder, self._rank, settings)

    def go_on(self, core: Core, group) -> int:
        """Loads the newest step that all servers have, a collective on the group; if there is none,
        servers write the first. Returns the step.

        Raises DeltawireError, alike on every rank, if a rank can't read its folder or has snapshots
        of other settings, or if servers have no step in common ("Mismatch").
        """
        record, own = bootstrap.RegistrationRecord(), []
        try:
            _make_folder(self._folder)
            own = self._files.find()
            record.settings = " ".join(map(str, own))
        except Exception as cause:
            record.problem = leaving.problem_of(cause)
        records = bootstrap.gather_records(record, group)
        step = _common_step(records, self._servers)
        if step in own:
            self._newest = step
            state = self._files.read(step)
            self._load(core, np.frombuffer(state, dtype=np.uint8))
        elif step:
            logger.warning(
                "rank %d has no snapshot of step %d in %s: what waited for its next pushes is lost",
                self._rank,
                step,
                self._folder,
            )
        self._files.drop_after(step)
        self._files.common = step
        if self._rank < self._servers and step not in own:
            self.write(core)
        return step

    def take(self, core: Core, catch_up: Callable[[], None]) -> None:
        """Writes a snapshot if one is due after this step; first a worker gets the changes of all
        its steps, by `catch_up`. A full disk doesn't end training: earlier snapshots remain. Raises
        DeltawireError ("Io") if it can't be written for another reason."""
        if steps_of(core) % self._every != 0:
            return
        catch_up()
        try:
            self.write(core)
        except DeltawireError as error:
            if error.code != "Io" or not str(error).endswith(_NO_ROOM):
                raise
            self.error = str(error)
            logger.warning(
                "rank %d goes on without a snapshot of step %d: %s; its newest one is of step %s. "
                "Make room: after a second one is lost, a crash may take training back to step %s",
                self._rank,
                steps_of(core),
                error,
                self._newest,
                self._files.common,
            )

    def write(self, core: Core) -> None:
        """Writes a snapshot, which is on the disk on return. Raises DeltawireError ("Io")."""
        state = core.save()
        if self._rank >= self._servers:
            buffers = b"".join(_bytes_of(each).numpy().tobytes() for each in self._buffers)
            state = _LENGTH.pack(len(state)) + state + buffers
        self._files.write(steps_of(core), state)
        self._newest, self.error = steps_of(core), None

    def _load(self, core: Core, state: np.ndarray) -> None:
        if self._rank < self._servers:
            core.load(state)
            return
        (length,) = _LENGTH.unpack(state[: _LENGTH.size].tobytes())
        core.load(state[_LENGTH.size : _LENGTH.size + length])
        rest = torch.from_numpy(state[_LENGTH.size + length :].copy())
        for buffer in self._buffers:
            flat = _bytes_of(buffer)
            buffer.copy_(rest[: flat.numel()].view(buffer.dtype).reshape(buffer.shape))
            rest = rest[flat.numel() :]


def _make_folder(path: str) -> None:
    """Creates the folder and syncs its directory entry, like the snapshots'."""
    if not os.path.isdir(path):
        os.makedirs(path, exist_ok=True)
        sync_folder(os.path.dirname(os.path.abspath(path)))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _common_step(records: list[bootstrap.RegistrationRecord], servers: int) -> int:
    """The newest step that all servers have; 0 if training starts."""
    for rank, record in enumerate(records):
        if record.problem is not None:
            raise make_error("Aborted", f"rank {rank} can't go on: {record.problem}", rank)
    found = [set(map(int, record.settings.split())) for record in records[:servers]]
    common = set.intersection(*found)
    if common:
        return max(common)
    for rank, steps in enumerate(found):
        if any(steps):  # at step 0 a server may have stopped before it wrote its first
            other = next(at for at, others in enumerate(found) if not others & steps)
            raise make_error(
                "Mismatch",
                f"servers have no snapshot of the same step: rank {rank} of {sorted(steps)}, rank "
                f"{other} of {sorted(found[other])}; bring back the folder's files, or begin anew "
                "in an empty folder",
                other,
            )
    return 0
