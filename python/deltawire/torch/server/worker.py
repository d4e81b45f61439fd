"""A worker's step: when each gradient is sent, and when parameters are waited for."""

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Sequence

import torch

from deltawire import _core
from deltawire.errors import wrong_state
from deltawire.torch.server.memory import ServedMemory
from deltawire.torch.server.model import ServedModel


class ServedWorker:
    """Connects the module's hooks with the core's worker.

    Args:
        core: the worker.
        model: the served parameters.
        memory: theirs, which the core writes to.
        timeout_ms: for each wait.
        overlap: one of settings.OVERLAPS.
        guarded: a context in which the module's hooks run; it tells the other ranks of an error.
        after_step: called after each step, when the parameters are complete.

    Attributes:
        push_seconds, wait_seconds: time for compressing gradients, and for waiting for parameters
            and storing them.
        model_bytes: size of the messages with the initial model.
        sync: whether gradients are sent as soon as they are complete.
    """

    def __init__(
        self,
        core: _core.ParameterWorker,
        model: ServedModel,
        memory: ServedMemory,
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
        self._memory = memory
        self._timeout_ms = timeout_ms
        self._guarded = guarded
        self._after_step = after_step
        self._is_open = False
        self._pulls_late = overlap == "both"
        everything = range(len(model.names))
        self._pushed: set[int] = set()
        self._pending: set[int] = set()  # parameters whose last change was not waited for
        self._is_midway = False  # the last step is not over
        # Parameters whose layer has begun its forward pass in this step. Others are used in another
        # way: `step` waits for their changes.
        self._reached: set[int] = set()
        self._unreached: set[int] = set() if self._pulls_late else set(everything)
        on_gradient = self._on_gradient if overlap != "none" else None
        self._handles = _attach(model, self._before_layer, on_gradient, self.wait)

    def detach(self) -> None:
        """Removes all hooks from the module."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def open(self) -> None:
        """Fetches the model, once."""
        if not self._is_open:
            with self._written():
                self.core.open(self._timeout_ms)
            self.model_bytes = self.core.counts.pull_bytes
            self._is_open = True

    @property
    def steps(self) -> int:
        """Steps in the parameters, once they have arrived."""
        return self.core.step + (self._is_midway and not self.core.has_ended)

    def step(self) -> bool:
        """Ends the step. Returns False if the servers have closed without it."""
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
        """Waits for all parameters of the last step."""
        if self._is_midway:
            # What layers have waited for must not be written again: backward may need it.
            with self._written(sorted(self._pending) if self._pulls_late else None):
                self.core.pull_all(self._timeout_ms)
            self._is_midway = False
            self._pending.clear()
            if not self.core.has_ended:
                self._after_step()

    def close(self) -> None:
        """Says goodbye to the servers, after all parameters have arrived."""
        self.open()
        self.wait()
        with self._written():
            self.core.close(self._timeout_ms)

    def catch_up(self) -> None:
        """With staleness: waits until none of this worker's gradients is in flight, so that its
        state and the servers' belong together."""
        # With overlap="both" there is no staleness, and this may be in backward: see `wait`.
        with self._written([] if self._pulls_late else None):
            self.core.catch_up(self._timeout_ms)

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
            raise wrong_state(
                f"parameter '{name}' has a gradient of a forward pass that came before the "
                "servers' values: start() before all else"
            )
        if index in self._pending:
            raise wrong_state(
                f"parameter '{name}' was used while its change was on its way: not by its own "
                'layer, or without calling it; use overlap="push", or wait() before the forward '
                "pass"
            )
        if index in self._pushed:
            raise wrong_state(
                f"parameter '{name}' has a second gradient since the last step(): its first has "
                "left; all backward passes of a step but the last belong in no_sync()"
            )
        if index not in self._reached:
            self._unreached.add(index)
        self.wait()
        self._push(index)

    def _push(self, index: int) -> None:
        began = time.monotonic()
        self.core.push(index, self._memory.gradient(index, self._timeout_ms / 1000))
        self._pushed.add(index)
        self.push_seconds += time.monotonic() - began

    def _pull(self, index: int) -> None:
        if index in self._pending:
            with self._written([index]):
                self.core.pull(index, self._timeout_ms)
            self._pending.discard(index)

    @contextlib.contextmanager
    def _written(self, indices: Sequence[int] | None = None) -> Iterator[None]:
        """The core waits, and writes to these parameters or all."""
        began = time.monotonic()
        try:
            with self._memory.written(self._timeout_ms / 1000, indices):
                yield
        finally:
            self.wait_seconds += time.monotonic() - began


class _Call:
    """A weak reference to a method, for hooks. In a copy of the module it does nothing, because no
    server serves a copied or saved model."""

    def __init__(self, method: Callable | None, *first) -> None:
        self._method = weakref.WeakMethod(method) if method is not None else None
        self._first = first
        # Here, not as a decorator, which would import torch._dynamo together with this module: that
        # takes seconds, and not every program needs it.
        self._call = torch.compiler.disable(_call)

    def __call__(self, *_arguments, **_options) -> None:
        self._call(self._method, self._first)

    def __deepcopy__(self, memo) -> "_Call":
        return _Call(None)

    def __reduce__(self):
        return _Call, (None,)


def _call(held: weakref.WeakMethod | None, first: tuple) -> None:
    method = held() if held is not None else None
    if method is not None:
        method(*first)


def _attach(
    model: ServedModel,
    before_layer: Callable[[tuple[int, ...]], None],
    on_gradient: Callable[[int], None] | None,
    before_saving: Callable[[], None],
) -> list:
    """Installs hooks in a model; remove() of the returned handles removes them.

    Args:
        model: the served parameters.
        before_layer: called before the forward pass of each module that has parameters of its own,
            with their indices.
        on_gradient: called with a parameter's index when its gradient is complete, if not None.
        before_saving: called before each module's state_dict().
    """
    handles = []
    for module in model.module.modules():
        own = (model.indices.get(id(each)) for each in module.parameters(recurse=False))
        indices = tuple(index for index in own if index is not None)
        if indices:
            handles.append(module.register_forward_pre_hook(_Call(before_layer, indices)))
            handles.append(module.register_state_dict_pre_hook(_Call(before_saving)))
    if on_gradient is not None:
        for index, parameter in enumerate(model.parameters):
            call = _Call(on_gradient, index)
            handles.append(parameter.register_post_accumulate_grad_hook(call))
    return handles
