"""Whether fully_shard has cut all of a model that is trained."""

import torch

from deltawire.errors import invalid, wrong_state
from deltawire.torch.core.module_parameters import ModuleParameters
from deltawire.torch.fsdp.groups import Group


class Covered:
    """Checks that FSDP's groups contain all parameters of a model that require gradients.

    Raises InvalidArgumentError (a ValueError), naming the parameters that are in no group.
    """

    def __init__(self, model: torch.nn.Module, groups: list[Group]) -> None:
        self._in_module = ModuleParameters(model)
        self._places = {place for group in groups for place in group.places}
        if names := self._left_out():
            raise invalid(
                f"fully_shard has not cut {_listed(names)}, whose gradients would stay each rank's "
                "own; call fully_shard(model, mesh=...) on the root, too, or freeze them"
            )

    def check(self) -> None:
        """Raises DeltawireError ("State"), naming parameters that are in no group any more."""
        if names := self._left_out():
            raise wrong_state(
                f"fully_shard has not cut {_listed(names)}: frozen, or not there, when the model "
                "was registered, and would differ between ranks; close the hook, call fully_shard "
                "on what is new, and register again"
            )

    def _left_out(self) -> list[str]:
        places = self._places
        return self._in_module.left_out(lambda module, key: (id(module), key) in places)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    words = ", ".join(f"'{name}'" for name in names[:3])
    return f"parameter{'s' * (len(names) > 1)} {words}{more}"
