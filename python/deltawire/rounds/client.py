"""A client's side of federated rounds."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from deltawire import arguments, arrays
from deltawire.channel import Channel
from deltawire.errors import (
    DeltawireError,
    check_state_given,
    corrupt,
    invalid,
    make_error,
    mismatch,
    wrong_state,
)
from deltawire.rounds import lossless
from deltawire.rounds.limits import brief
from deltawire.rounds.messages import (
    KINDS,
    PATCHES,
    Download,
    ModelLayout,
    Reply,
    as_float32,
    check_layout,
    digest_of,
    layout_of,
    zeros,
)

_STATE = {  # keys and types
    "spec": str,
    "version": int,
    "layout": str,
    "model": bytes,
    "residual": bytes,
    "pending_round": int,
    "pending": bytes,
}


class Client:
    """One client: its copy of the server's model, and the part of its updates that is not sent yet.

    After `reply` the residual has what the codec left out, and the frame is kept until the server's
    next download tells its fate:

    - accepted: the update counts, and the frame is dropped;
    - not mentioned (lost, or past the deadline): the whole frame is added to the next update;
    - refused (e.g. for too large a norm): frame and residual are dropped, because they would be
      refused again. `dropped` adds them up.

    So the sum of its updates = those that were accepted + `waiting()` + `dropped`, up to rounding.

    Args:
        spec: codec or rules of the updates: "sbc:p=1%".
        rank: for codecs that draw random numbers: a different number for each client, below 65,535.
        min_elements: arrays below this many elements are sent uncompressed.
        error_feedback: False: what a frame leaves out is lost.
        seed: for codecs that draw random numbers.

    Attributes:
        spec: canonical.
        version: of the model that it has; 0: none.
        layout: `ModelLayout` of the model that it has; None: it has none.
        dropped: the sum of refused updates, by name, since this object was created.

    Memory: the model, the residual and a frame. Thread rule: one thread at a time.
    """

    def __init__(
        self,
        spec: str,
        *,
        rank: int = 0,
        min_elements: int = 256,
        error_feedback: bool = True,
        seed: int = 0,
    ) -> None:
        self._options = {
            "rank": rank,
            "world_size": 65_535,
            "min_elements": min_elements,
            "error_feedback": error_feedback,
            "seed": seed,
        }
        self._channel = Channel(spec, **self._options)
        self._min_elements = min_elements
        self.spec = self._channel.spec
        self.version = 0
        self.layout: ModelLayout | None = None
        self._model: dict[str, np.ndarray] = {}
        self._answers: Download | None = None
        self._pending: tuple[int, bytes] | None = None
        self.dropped: dict[str, np.ndarray] = {}

    def receive(self, download: Download) -> dict[str, np.ndarray]:
        """The server's model, as new arrays that the caller may change.

        Raises:
            DeltawireError: "State": this client lacks the version that the download is based on, or
                the layout (a lost state, another digest): ask for a full one, nothing has changed.
                "Corrupt", "Truncated" and similar: a frame or patch that doesn't decode.
                "UnsupportedVersion": a kind or codec of a newer server.
        """
        layout = self._layout_for(download)
        model = self._updated(download, layout)
        if digest_of(model) != download.digest:
            raise wrong_state(
                f"the model at version {download.version} is not the server's (another digest); "
                "ask the server for the full model"
            )
        self.layout = layout
        self._settle(download)
        self._model, self.version, self._answers = model, download.version, download
        return {name: array.copy() for name, array in model.items()}

    def _layout_for(self, download: Download) -> ModelLayout:
        layout = download.layout or self.layout
        if layout is None or layout.id != download.layout_id:
            raise wrong_state(
                f"this client doesn't know the model's layout {download.layout_id}; ask the server "
                "for the full model"
            )
        return layout

    def _updated(self, download: Download, layout: ModelLayout) -> dict[str, np.ndarray]:
        if download.kind not in KINDS or download.weights not in lossless.CODECS:
            raise make_error(
                "UnsupportedVersion",
                f"the download is of kind {brief(download.kind, 40)}, weights "
                f"{brief(download.weights, 40)}, which this client can't read: update deltawire",
            )
        if download.kind == "full":
            model, reader = zeros(layout.tensors), lossless.whole_channel(download.weights)
            for frame in download.frames:
                reader.decode(frame, model)
            return model
        known = download.base <= self.version <= download.version
        if not known or layout_of(self._model) != layout.tensors:
            raise self._needs_full(download, f"this client has {self.version or 'none'}")
        if download.kind == "patch" and self.version < download.version:
            return self._patched(download, layout)
        model = {name: array.copy() for name, array in self._model.items()}
        reader = Channel(download.spec, error_feedback=False, min_elements=self._min_elements)
        for frame in download.frames[self.version - download.base :]:  # it has those before
            reader.decode(frame, model)
            if download.weights != "float32":
                values = lossless.packed(model, download.weights)
                model = lossless.unpacked(values, layout.tensors)
        return model

    def _patched(self, download: Download, layout: ModelLayout) -> dict[str, np.ndarray]:
        if len(download.frames) != 1:
            raise corrupt(f"a patch in {len(download.frames)} frames; due is one")
        try:
            return lossless.patched(
                self._model, download.frames[0], download.weights, layout.tensors
            )
        except DeltawireError as error:
            if error.code != "Mismatch":
                raise
            raise self._needs_full(download, str(error)) from error

    def _needs_full(self, download: Download, why: str) -> DeltawireError:
        return wrong_state(
            f"the server sends what has changed since version {download.base}, {why}; ask the "
            "server for the full model"
        )

    def _settle(self, download: Download) -> None:
        """Settles the last update. A reply older than the last accepted one was included in it."""
        if self._pending is None:
            return
        number, _ = self._pending
        if download.refused >= number and download.refused > download.accepted:
            for name, array in self.waiting().items():
                self.dropped[name] = self.dropped.get(name, 0) + array
            self._channel = Channel(self.spec, **self._options)
            self._pending = None
        elif download.accepted >= number:
            self._pending = None

    def reply(
        self,
        trained: Mapping[str, np.ndarray],
        samples: int,
        *,
        momentum: Iterable[Mapping[str, np.ndarray]] = (),
    ) -> Reply:
        """The update of the model of the last `receive`: `trained` - model + the residual.

        Args:
            trained: the weights after the local steps, with the model's names, shapes and order.
            samples: how many it was trained with, 1 or more.
            momentum: of the optimizer, in dicts by tensor name: set to 0 in place where the frame
                sends something, so that stale momentum doesn't keep moving a weight whose update
                was just sent (momentum masking: SBC, supplement A). For sparse codecs.

        Raises:
            InvalidArgumentError, DTypeError: not floating-point arrays by name.
            DeltawireError: "Mismatch": other tensors than the model's. "NotFinite": names the
                array. "State": nothing was received. The client's state is then as it was.
        """
        if self._answers is None:
            raise wrong_state("nothing was received; call receive() before reply()")
        samples = arguments.check_positive("samples", samples)
        momentum = self._checked(momentum)
        update = as_float32(trained)
        check_layout(layout_of(update), self.layout.tensors, "what was trained")
        for name, array in update.items():
            if not np.isfinite(array).all():
                raise make_error(
                    "NotFinite",
                    f"'{name}' has values that are not finite after training; nothing is sent: "
                    "lower the learning rate, or skip such steps",
                )
            array -= self._model[name]
        if self._pending is not None:  # the server never had it
            self._channel.decode(self._pending[1], update)
        frame = self._channel.encode(update, step=self._answers.round)
        self._pending = (self._answers.round, frame)
        self._mask(frame, momentum)
        return Reply(frame, self.spec, self._answers.round, self.version, samples, PATCHES)

    def _checked(self, momentum: Iterable[Mapping]) -> list[Mapping[str, np.ndarray]]:
        shapes = {tensor.name: tensor.shape for tensor in self.layout.tensors}
        found = list(momentum)
        for buffers in found:
            arrays.check_names(buffers)
            for name, buffer in buffers.items():
                if name not in shapes or getattr(buffer, "shape", None) != shapes[name]:
                    raise mismatch(
                        f"the momentum of '{name}' is no array of the shape that the model has "
                        f"there ({shapes.get(name, 'no such tensor')}); give the optimizer's own"
                    )
                try:  # before anything changes
                    buffer[np.zeros(shapes[name], bool)] = 0
                except (TypeError, ValueError, RuntimeError) as cause:
                    words = f"the momentum of '{name}' can't be written ({cause})"
                    raise invalid(words) from cause
        return found

    def _mask(self, frame: bytes, momentum: list[Mapping[str, np.ndarray]]) -> None:
        sent = None
        for buffers in momentum:
            if sent is None:
                sent = zeros(self.layout.tensors)
                self._channel.decode(frame, sent)
            for name, buffer in buffers.items():
                buffer[sent[name] != 0] = 0

    def waiting(self) -> dict[str, np.ndarray]:
        """The updates not sent, or not accepted yet: residual and unsettled frame."""
        waits = zeros(layout_of(self._model))
        for name, array in waits.items():
            residual = self._channel.residual(name)
            if residual.size:
                array += residual.reshape(array.shape)
        if self._pending is not None:
            self._channel.decode(self._pending[1], waits)
        return waits

    def state(self) -> dict:
        """The state to keep between processes: numbers, text and bytes; `layout` is the text of a
        `ModelLayout`, or empty."""
        number, frame = self._pending or (-1, b"")
        return {
            "spec": self.spec,
            "version": self.version,
            "layout": "" if self.layout is None else self.layout.text,
            "model": b"".join(array.tobytes() for array in self._model.values()),
            "residual": self._channel.save(),
            "pending_round": number,
            "pending": frame,
        }

    def load_state(self, state: Mapping) -> None:
        """Restores what `state` returned. Call `receive` next.

        Raises:
            InvalidArgumentError (a ValueError): not what `state` returned.
            DeltawireError: "Mismatch": of another spec, or of a model of another size; "Corrupt",
                "Truncated": damaged. Nothing has changed then.
        """
        check_state_given(state, _STATE)
        for key, kind in _STATE.items():
            if type(state[key]) is not kind:
                raise invalid(
                    f"the state's {key} is a {type(state[key]).__name__}, not {kind.__name__}; "
                    "load what state() returned"
                )
        layout = ModelLayout.from_text(state["layout"]) if state["layout"] else None
        tensors, values = layout.tensors if layout else (), state["model"]
        count = sum(math.prod(tensor.shape) for tensor in tensors)
        if state["spec"] != self.spec or len(values) != 4 * count:
            raise mismatch(
                f"the client's state is of spec {state['spec'][:80]} and {len(values):,} bytes of "
                f"weights; this is {self.spec}: start from an empty state"
            )
        if state["pending"]:
            self._channel.decode(state["pending"], zeros(tensors))
        self._channel.load(state["residual"])
        self.layout = layout
        self._model = lossless.unpacked(np.frombuffer(bytearray(values), np.float32), tensors)
        self.version, self._answers, self._pending = state["version"], None, None
        if state["pending_round"] >= 0:
            self._pending = (state["pending_round"], state["pending"])
