"""The session of a copied hook: connections and threads have one owner, the original.

torch lets a DDP model be deep-copied and pickled together with its communication hook, but never
calls the copy's hook: the copy would silently exchange plain gradients. A copied `Hook` raises an
error instead.
"""

from deltawire import _core
from deltawire.errors import DeltawireError, make_error


class DetachedSession:
    """A session that is closed from the start. Every use raises an error that says what to do."""

    closed = True

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def error(self) -> DeltawireError:
        """The "State" error that every use raises."""
        return make_error(
            "State",
            "this is a copy of a registered model or of its hook, and has no session: its "
            "gradients would be exchanged uncompressed; register the copied model again to train "
            "it (or use it under torch.no_grad())",
        )

    def submit(self, *_) -> None:
        """Raises `error()`."""
        raise self.error()

    def explain(self, *_) -> list:
        """Raises `error()`."""
        raise self.error()

    def save(self) -> bytes:
        """Raises `error()`."""
        raise self.error()

    def load(self, _) -> None:
        """Raises `error()`."""
        raise self.error()

    def load_resized(self, *_) -> None:
        """Raises `error()`."""
        raise self.error()

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received: a copy has no links."""
        return 0, 0

    def memory(self) -> _core.Memory:
        """All zeros: a copy has no exchange."""
        return _core.Memory()

    def abort(self, _) -> None:
        """There is nobody to tell."""

    def close(self) -> None:
        """Nothing to do: a copy is never open."""
