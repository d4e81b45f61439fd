"""Sends the server's model: a version is encoded once for all clients, if possible as a delta."""

from collections.abc import Hashable, Mapping

import numpy as np

from deltawire.channel import Channel
from deltawire.policy import Policy
from deltawire.rounds.messages import (
    FULL,
    Download,
    ModelLayout,
    as_float32,
    check_layout,
    digest_of,
    layout_of,
)


class Broadcast:
    """The versions of the model for clients, and which version each client has.

    The *reference* is the model that a client has after all frames. A new version is the difference
    between the model and the reference, encoded once. So what one frame leaves out is in the next:
    the server's residual is model - reference, and needs no extra memory.

    Args:
        spec: codec or rules of the deltas; None: every version is sent whole.
        min_elements: arrays below this many elements are sent uncompressed.

    Attributes:
        version: of the reference; 0 before the first `advance`.
        reference: float32 arrays; not to be changed.
        layout: `ModelLayout` of the reference.
        source: the last model given to `advance`, float32; the reference approximates it.

    Memory: three models (the last source, the reference, its frame). Deltas of earlier versions are
    kept while together they are smaller than the model. Thread rule: one thread at a time.
    """

    def __init__(self, spec: Policy | None, *, min_elements: int = 256) -> None:
        self._full = Channel(FULL, error_feedback=False)
        self._channel = None
        if spec is not None:
            self._channel = Channel(spec, min_elements=min_elements, error_feedback=False)
        self.version = 0
        self.reference: dict[str, np.ndarray] = {}
        self.layout = ModelLayout()
        self.source: dict[str, np.ndarray] = {}
        self._whole: bytes | None = None
        self._deltas: list[bytes] = []  # the last makes `version` of the one before
        self._digest = 0
        self._has: dict[Hashable, tuple[int, str]] = {}  # version and layout's id

    def advance(self, model: Mapping[str, np.ndarray], *, also: str = "") -> None:
        """Makes `model` the one to send: a new version, unless it equals the last one bit for bit.

        Args:
            model: floating-point arrays by name.
            also: `ModelLayout.also`. If it has changed, it is sent to every client again.

        Raises:
            DTypeError: an array that isn't floating point.
            DeltawireError: "NotFinite" (names the array), "Mismatch": other tensors than before.
                Nothing has changed then.
        """
        source = as_float32(model)
        if self.version:
            check_layout(layout_of(source), self.layout.tensors, "the new model")
            self.layout = ModelLayout(self.layout.tensors, also)
            if all(np.array_equal(source[name], last) for name, last in self.source.items()):
                return
        if self.version and self._channel is not None:
            self._step_towards(source)
        else:
            self._full.encode(source)  # refuses what is not finite
            self.reference = {name: array.copy() for name, array in source.items()}
        self.source, self.layout = source, ModelLayout(layout_of(source), also)
        self.version += 1
        self._digest, self._whole = digest_of(self.reference), None

    def _step_towards(self, source: dict[str, np.ndarray]) -> None:
        change = {name: array - self.reference[name] for name, array in source.items()}
        frame = self._channel.encode(change, step=self.version)
        reference = {name: array.copy() for name, array in self.reference.items()}
        self._channel.decode(frame, reference)
        self.reference = reference
        self._deltas.append(frame)
        model_bytes = sum(array.nbytes for array in source.values())
        while sum(map(len, self._deltas)) > model_bytes:
            del self._deltas[0]

    def download(self, client: Hashable, *, full: bool = False) -> Download:
        """What to send a client: nothing, the deltas that it has missed, or the model; and the
        layout, if it doesn't have it. Call `confirm` when it has arrived.

        Args:
            client: any name.
            full: True: the whole model, for a client that has lost its state.
        """
        if full:
            self.forget(client)
        have, _ = self._has.get(client, (0, ""))
        missed = self.version - have
        if have and missed == 0:
            return self._made(client, "same", (), have)
        if have and missed <= len(self._deltas):
            return self._made(client, "delta", tuple(self._deltas[-missed:]), have)
        if self._whole is None:
            self._whole = self._full.encode(self.reference, step=0)
        return self._made(client, "full", (self._whole,), 0)

    def _made(self, client: Hashable, kind: str, frames: tuple[bytes, ...], base: int) -> Download:
        spec = self._channel.spec if kind == "delta" else self._full.spec
        _, known = self._has.get(client, (0, ""))
        layout = None if known == self.layout.id else self.layout
        return Download(
            kind, frames, spec, base, self.version, self._digest, self.layout.id, layout
        )

    def confirm(self, client: Hashable, version: object) -> None:
        """The client has said that it has this version; unknown versions are ignored. A client that
        names a version that it doesn't have gets a delta that doesn't fit: it notices that by the
        digest, and asks for the whole model."""
        if type(version) is int and 1 <= version <= self.version:
            self._has[client] = (version, self.layout.id)

    def forget(self, client: Hashable) -> None:
        """Forgets which version the client has: it will get the model and its layout."""
        self._has.pop(client, None)
