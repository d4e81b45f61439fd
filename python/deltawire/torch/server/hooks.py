"""What a model calls while it computes: before a layer's forward pass, when a gradient is there."""

import weakref
from collections.abc import Callable

import torch

from deltawire.torch.server.model import ServedModel


class _Call:
    """A method of somebody who is held weakly. A copy of the module has one that does nothing: a
    copied or saved model is served by nobody."""

    def __init__(self, method: Callable | None, *first) -> None:
        self._method = weakref.WeakMethod(method) if method is not None else None
        self._first = first
        # Here, not around the method: that imports torch._dynamo, for seconds, which whoever
        # imports this module may never need.
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


def attach(
    model: ServedModel,
    before_layer: Callable[[tuple[int, ...]], None],
    on_gradient: Callable[[int], None] | None,
    before_saving: Callable[[], None],
) -> list:
    """Handles, whose remove() ends it.

    Args:
        model: whose modules and parameters.
        before_layer: called before the forward pass of each module that has some, with the indices
            of the parameters that are its own.
        on_gradient: called with a parameter's index when its gradient is complete. None: never.
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
