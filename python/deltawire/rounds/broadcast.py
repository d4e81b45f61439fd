"""Sends the server's model: a version is encoded once for all clients, if possible as a change."""

from collections.abc import Container, Hashable, Mapping
from typing import NamedTuple

import numpy as np

from deltawire import arguments
from deltawire.channel import Channel
from deltawire.errors import invalid, make_error
from deltawire.rounds import lossless
from deltawire.rounds.messages import (
    Download,
    ModelLayout,
    as_float32,
    check_layout,
    digest_of,
    layout_of,
    zeros,
)

_MOST_BASES = 8  # without a codec: deltas are mostly smaller than patches


class _Held(NamedTuple):
    """A client's state, according to its last reply."""

    version: int = 0
    layout_id: str = ""
    patches: bool = False  # whether it reads them


_NOTHING = _Held()


class _Bases:
    """The last versions that clients still have, as bases of patches to the newest one.

    Args:
        most: how many are kept.
        weights: "float32" or "bfloat16", as which the models are packed.

    Memory: for each base a packed model, and a patch once a client has needed it.
    Thread rule: one thread at a time.
    """

    def __init__(self, most: int, weights: str) -> None:
        arguments.check_count("bases", most)
        self._most, self._weights = most, weights
        self._models: dict[int, np.ndarray] = {}  # by version, the oldest first
        self._patches: dict[int, bytes] = {}  # by the version that they are made from

    def add(self, version: int, model: np.ndarray, in_use: Container[int]) -> None:
        """Adds the version that was the newest until now; drops those that nobody has."""
        self._patches.clear()
        self._models[version] = model
        self._models = {v: model for v, model in self._models.items() if v in in_use}
        while len(self._models) > self._most:
            del self._models[next(iter(self._models))]

    def patch(self, version: int, newest: np.ndarray) -> bytes | None:
        """The patch from a version to the newest, made once; None if that isn't kept."""
        if version not in self._patches and version in self._models:
            made = lossless.make(self._models[version], newest, self._weights)
            self._patches[version] = made
        return self._patches.get(version)


class Broadcast:
    """The versions of the model for clients, and which version each client has.

    The *reference* is the model that a client has after all frames. With a codec, a new version is
    the difference between the model and the reference, encoded once. So what one frame leaves out
    is in the next: the server's residual is model - reference, and needs no extra memory.

    A client that has an earlier version gets whatever is smallest: the deltas since then, a
    lossless patch, or the whole model.

    Args:
        spec: codec or rules of the deltas; None: no deltas, the reference is the model.
        min_elements: arrays below this many elements are sent uncompressed.
        weights: "float32", or "bfloat16": every reference is rounded to it, which halves the whole
            model and makes patches smaller. Rounding errors don't add up: `source` has all bits.
        bases: how many earlier versions are kept to make patches from; 0: no patches. None: 8, and
            with a codec 0, since its deltas are smaller than patches unless few weights change.

    Raises:
        InvalidArgumentError: a bad argument.

    Attributes:
        version: of the reference; 0 before the first `advance`.
        reference: float32 arrays; not to be changed.
        layout: `ModelLayout` of the reference.
        source: the last model given to `advance`, float32; the reference approximates it.
        sends_patches: whether it ever does.

    Memory: three models (the last source, the reference, its frame); for "bfloat16" half a model
    more, and half frames. Deltas of earlier versions are kept while together they are smaller than
    the model. For each base, as long as a client has it, a model (a half) and a patch, made once.
    Thread rule: one thread at a time.
    """

    def __init__(
        self,
        spec: str | None,
        *,
        min_elements: int = 256,
        weights: str = "float32",
        bases: int | None = None,
    ) -> None:
        if weights not in lossless.CODECS:
            known = " or ".join(map(repr, lossless.CODECS))
            raise invalid(f"weights={weights!r} must be {known}")
        self._weights = weights
        self._full = lossless.whole_channel(weights)
        if bases is None:
            bases = _MOST_BASES if spec is None else 0
        self._bases, self.sends_patches = _Bases(bases, weights), bases > 0
        self._channel = None
        if spec is not None:
            self._channel = Channel(spec, min_elements=min_elements, error_feedback=False)
        self.version = 0
        self.reference: dict[str, np.ndarray] = {}
        self.layout = ModelLayout()
        self.source: dict[str, np.ndarray] = {}
        self._packed = np.empty(0, np.float32)  # the reference; shares its memory if float32
        self._whole: bytes | None = None
        self._deltas: list[bytes] = []  # the last makes `version` of the one before
        self._digest = 0
        self._has: dict[Hashable, _Held] = {}

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
            if all(np.array_equal(source[name], last) for name, last in self.source.items()):
                self.layout = ModelLayout(self.layout.tensors, also)
                return
        layout = ModelLayout(layout_of(source), also)
        model, frame = self._next(source)
        values = lossless.packed(model, self._weights)
        reference = lossless.unpacked(values, layout.tensors)
        for name, array in reference.items():
            if not np.isfinite(array).all():
                raise make_error("NotFinite", f"'{name}' has values beyond what its dtype holds")
        if self.version:
            in_use = {held.version for held in self._has.values() if held.patches}
            self._bases.add(self.version, self._packed, in_use)
        if frame is not None:
            self._deltas.append(frame)
            while sum(map(len, self._deltas)) > values.nbytes:
                del self._deltas[0]
        self.source, self.layout = source, layout
        self._packed, self.reference = values, reference
        self.version += 1
        self._digest, self._whole = digest_of(reference), None

    def _next(self, source: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], bytes | None]:
        """The next reference, not yet rounded, and the delta that leads to it, if there is one."""
        if self._channel is None or not self.version:
            model = zeros(layout_of(source))
            self._full.decode(self._full.encode(source), model)  # -0 becomes 0, as at a client
            return model, None
        change = {name: array - self.reference[name] for name, array in source.items()}
        frame = self._channel.encode(change, step=self.version)
        model = {name: array.copy() for name, array in self.reference.items()}
        self._channel.decode(frame, model)
        return model, frame

    def download(self, client: Hashable, *, full: bool = False) -> Download:
        """A client's download: nothing, the changes since its version, or the model; and the
        layout, if the client doesn't have it. Call `confirm` when it has arrived.

        Args:
            client: any name.
            full: True: the whole model, for a client that has lost its state.
        """
        if full:
            self.forget(client)
        held = self._has.get(client, _NOTHING)
        if held.version == self.version:
            return self._made(held, "same", ())
        if held.version:
            kind, frames = self._change_since(held)
            if frames:
                return self._made(held, kind, frames)
        if self._whole is None:
            self._whole = self._full.encode(self.reference, step=0)
        return self._made(held, "full", (self._whole,))

    def _change_since(self, held: _Held) -> tuple[str, tuple[bytes, ...]]:
        """The smallest change, if it is smaller than the model: kind and frames."""
        missed, deltas = self.version - held.version, ()
        if missed <= len(self._deltas):
            deltas = tuple(self._deltas[-missed:])
        least = sum(map(len, deltas)) if deltas else self._packed.nbytes
        patch = self._bases.patch(held.version, self._packed) if held.patches else None
        if patch is not None and len(patch) < least:
            return "patch", (patch,)
        return "delta", deltas

    def _made(self, held: _Held, kind: str, frames: tuple[bytes, ...]) -> Download:
        spec = self._channel.spec if kind == "delta" else self._full.spec
        base = 0 if kind == "full" else held.version
        layout = None if held.layout_id == self.layout.id else self.layout
        return Download(
            kind,
            frames,
            spec,
            base,
            self.version,
            self._digest,
            self.layout.id,
            layout,
            weights=self._weights,
        )

    def confirm(self, client: Hashable, version: object, patches: object = 0) -> None:
        """The client has said that it has this version, and which format of patches it reads (see
        `Reply.patches`). Unknown versions are ignored. A client that names a version that it
        doesn't have gets a change that doesn't fit: it notices that by the digest, and asks for the
        whole model."""
        if type(version) is int and 1 <= version <= self.version:
            reads = type(patches) is int and patches >= 1
            self._has[client] = _Held(version, self.layout.id, reads)

    def forget(self, client: Hashable) -> None:
        """Forgets which version the client has: it will get the model and its layout."""
        self._has.pop(client, None)
