"""Calls of methods that keep no object."""

import weakref
from collections.abc import Callable
from typing import Any


def weakly(method: Callable[..., Any], otherwise: Any = None) -> Callable[..., Any]:
    """Calls a bound method as long as there is its object; then the result is `otherwise`."""
    reference = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        return otherwise if (there := reference()) is None else there(*args)

    return call
