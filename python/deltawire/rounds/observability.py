"""Observing rounds: a line for each exchange, and TensorBoard's scalars."""

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path

from deltawire.errors import make_error


@dataclasses.dataclass(frozen=True)
class Seen:
    """One exchange between the server and its clients, or a test on the server.

    Attributes:
        kind: "train", "evaluate", or "server": the server's own test, without clients.
        round: from 0; -1 for a test before the first.
        clients: how many were asked.
        replies: how many were accepted.
        refused: replies that were dropped.
        silent: clients without a reply, or with an error's.
        down_bytes, up_bytes: of frames and headers.
        raw_bytes: the same frames as float32.
        metrics: the mean of the replies', weighted by their samples; or the server's test's.
    """

    kind: str
    round: int
    clients: int = 0
    replies: int = 0
    refused: int = 0
    silent: int = 0
    down_bytes: int = 0
    up_bytes: int = 0
    raw_bytes: int = 0
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def scalars(self) -> dict[str, float]:
        """The scalars by TensorBoard tag: "train/up_bytes", "evaluate/accuracy"."""
        names = ("clients", "replies", "refused", "silent", "down_bytes", "up_bytes")
        found = (
            {} if self.kind == "server" else {name: float(getattr(self, name)) for name in names}
        )
        found |= {name: float(value) for name, value in self.metrics.items()}
        return {f"{self.kind}/{name}": value for name, value in found.items()}

    def line(self) -> str:
        """The exchange in one line of text."""
        parts = []
        if self.kind != "server":
            parts.append(f"{self.replies} of {self.clients} clients")
            missing = (self.refused, "refused"), (self.silent, "silent")
            parts += [f"{n} {what}" for n, what in missing if n]
            sent = self.down_bytes + self.up_bytes
            parts.append(f"down {self.down_bytes:,} bytes, up {self.up_bytes:,}")
            if sent:
                parts.append(f"{self.raw_bytes / sent:,.1f} times smaller")
        parts += [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        return f"deltawire: round {self.round} {self.kind}: " + "; ".join(parts)


def live_line(seen: Seen) -> None:
    """Prints an exchange to stderr as it ends."""
    print(seen.line(), file=sys.stderr, flush=True)


class TensorBoard:
    """Writes each exchange's scalars to event files; the step is the round::

        watch = rounds.TensorBoard("runs/federated")

    Args:
        folder: of the event files; created if missing.

    Raises:
        ModuleNotFoundError: tensorboard is not installed; the text says what to do.
        DeltawireError: "Io": the folder can't be created.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboard.summary import Writer
        except ModuleNotFoundError as cause:
            if cause.name is None or cause.name.split(".")[0] != "tensorboard":
                raise
            raise ModuleNotFoundError(
                "rounds.TensorBoard needs tensorboard, which is not installed: "
                "pip install tensorboard",
                name="tensorboard",
            ) from None
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise make_error("Io", f"{folder}: no folder for event files ({cause})") from cause
        self._writer = Writer(str(folder))

    def __call__(self, seen: Seen) -> None:
        """Writes and flushes, so that a killed run loses nothing."""
        for tag, value in seen.scalars().items():
            self._writer.add_scalar(tag, value, step=max(0, seen.round))
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()
