"""A worker's step: which gradient leaves when, and which parameters are waited for when."""

import contextlib
import time
from collections.abc import Callable, Iterator

from deltawire import _core
from deltawire.errors import make_error
from deltawire.torch.server.hooks import attach
from deltawire.torch.server.model import ServedModel, gradient_of


class ServedWorker:
    """Between the module's hooks and the core's worker.

    Args:
        core: the worker.
        model: whose parameters are the servers'.
        timeout_ms: of each wait.
        overlap: one of settings.OVERLAPS.
        guarded: what the module's hooks run in, which tells the other ranks of an error.
        after_step: called after each step, when the parameters are whole.

    Attributes:
        push_seconds, wait_seconds: in compressing gradients; in waiting for parameters, and taking
            them in.
        model_bytes: of the messages with the model at the start.
        sync: whether gradients leave when they are complete.
    """

    def __init__(
        self,
        core: _core.ParameterWorker,
        model: ServedModel,
        timeout_ms: int,
        overlap: str,
        guarded: Callable[[], contextlib.AbstractContextManager],
        after_step: Callable[[], None],
    ) -> None:
        self.core = core
        self.push_seconds = self.wait_seconds = 0.0
        self.model_bytes = 0
        self.sync = True
        self._model = model
        self._timeout_ms = timeout_ms
        self._guarded = guarded
        self._after_step = after_step
        self._is_open = False
        self._pulls_late = overlap == "both"
        everything = range(len(model.names))
        self._pushed: set[int] = set()
        self._pending: set[int] = set()  # whose change of the last step was not waited for
        self._is_midway = False  # the last step waits for its end
        # Whose layer's forward pass has begun in this step; others are used in another way, and
        # their changes are waited for with the step.
        self._reached: set[int] = set()
        self._unreached: set[int] = set() if self._pulls_late else set(everything)
        on_gradient = self._on_gradient if overlap != "none" else None
        self._handles = attach(model, self._before_layer, on_gradient, self.wait)

    def detach(self) -> None:
        """Takes all hooks from the module."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def open(self) -> None:
        """Fetches the model, once."""
        if not self._is_open:
            with self._waiting():
                self.core.open(self._timeout_ms)
            self.model_bytes = self.core.counts.pull_bytes
            self._is_open = True

    @property
    def is_between_steps(self) -> bool:
        """No gradient has left for a step that isn't over."""
        return not self._pushed

    @property
    def steps(self) -> int:
        """That the parameters have, once they are waited for."""
        return self.core.step + (self._is_midway and not self.core.has_ended)

    def step(self) -> bool:
        """Ends the step; False where the servers have closed without it."""
        self._model.check_in_place()
        self.open()
        self.wait()
        if self.core.has_ended:
            return False
        for index in reversed(range(len(self._model.names))):
            if index not in self._pushed:
                self._push(index)
        self._pushed.clear()
        self._reached.clear()
        before, self._is_midway = self.core.step, True
        if not self._pulls_late:
            self.wait()
            return self.core.step > before
        self._pending = set(range(len(self._model.names)))
        for index in sorted(self._unreached):
            self._pull(index)
        return not self.core.has_ended

    def wait(self) -> None:
        """Until the parameters are whole: those that the last step has made."""
        if self._is_midway:
            with self._waiting():
                self.core.pull_all(self._timeout_ms)
            self._is_midway = False
            self._pending.clear()
            if not self.core.has_ended:
                self._after_step()

    def close(self) -> None:
        """Leaves the servers, once all is pulled."""
        self.open()
        self.wait()
        with self._waiting():
            self.core.close(self._timeout_ms)

    def _before_layer(self, indices: tuple[int, ...]) -> None:
        with self._guarded():
            self.open()
            self._reached.update(indices)
            for index in indices:
                self._pull(index)

    def _on_gradient(self, index: int) -> None:
        if self.sync and not self.core.has_ended:
            with self._guarded():
                self._gradient_is_there(index)

    def _gradient_is_there(self, index: int) -> None:
        name = self._model.names[index]
        if not self._is_open:
            raise make_error(
                "State",
                f"parameter '{name}' has a gradient of a forward pass that came before the "
                "servers' values: start() before all else",
            )
        if index in self._pending:
            raise make_error(
                "State",
                f"parameter '{name}' was used while its change was on its way: not by its own "
                'layer, or without calling it; use overlap="push", or wait() before the forward '
                "pass",
            )
        if index in self._pushed:
            raise make_error(
                "State",
                f"parameter '{name}' has a second gradient since the last step(): its first has "
                "left; all backward passes of a step but the last belong in no_sync()",
            )
        if index not in self._reached:
            self._unreached.add(index)
        self.wait()
        self._push(index)

    def _push(self, index: int) -> None:
        began = time.monotonic()
        name = self._model.names[index]
        self.core.push(index, gradient_of(name, self._model.parameters[index]))
        self._pushed.add(index)
        self.push_seconds += time.monotonic() - began

    def _pull(self, index: int) -> None:
        if index in self._pending:
            with self._waiting():
                self.core.pull(index, self._timeout_ms)
            self._pending.discard(index)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.wait_seconds += time.monotonic() - began
