"""Where a module keeps its parameters, to notice one that is trained and not exchanged."""

from collections.abc import Container

import torch

from deltawire.torch import wrappers


class Slots:
    """The places of all parameters that a module has now, shared ones each time.

    Args:
        module: whose.
        ignored: names of parameters that are nobody's concern.
    """

    def __init__(self, module: torch.nn.Module, ignored: Container[str] = ()) -> None:
        self._slots: list[tuple[str, dict, str]] = []  # name, the dict that holds it, its key there
        for prefix, child in module.named_modules():
            for key, parameter in child._parameters.items():
                name = f"{prefix}.{key}" if prefix else key
                if parameter is not None and name not in ignored:
                    self._slots.append((wrappers.plain_name(name), child._parameters, key))

    def names(self) -> dict[int, str]:
        """id(parameter) -> its name, of a shared one the first."""
        found: dict[int, str] = {}
        for name, owner, key in self._slots:
            found.setdefault(id(owner[key]), name)
        return found

    def left_out(self, exchanged: Container[int]) -> str | None:
        """The name of a parameter that requires gradients and whose id isn't in `exchanged`: thawed
        since, or put in the place of another. None where all is well."""
        for name, owner, key in self._slots:
            parameter = owner.get(key)
            if id(parameter) in exchanged or parameter is None:
                continue  # None: moved by a parametrization, and still exchanged
            if parameter.requires_grad and parameter.numel():
                return name
        return None
