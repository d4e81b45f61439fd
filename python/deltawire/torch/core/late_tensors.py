"""The tensors of a model whose gradients arrive late."""

import sys

from deltawire import _core
from deltawire.late_codecs import is_late
from deltawire.torch.core import arguments


class LateTensors:
    """Which tensors of a model arrive late, step by step.

    Args:
        spec: canonical.
        min_elements: as for `register`.
        names: id(parameter) -> name.
        tensors: (name, shape, name of the dtype) of each.
    """

    def __init__(
        self, spec: str, min_elements: int, names: dict[int, str], tensors: list[tuple]
    ) -> None:
        self.spec = spec
        self._options = arguments.reducer_options(min_elements, "exact", 1)
        self.names = names
        self.tensors = tensors
        self._range = range(0)  # the steps for which `_late` is right
        self._late: dict[int, str] = {}

    def at(self, step: int) -> dict[int, str]:
        """Those of this step: id(parameter) -> name."""
        if step not in self._range:
            uses = _core.explain(self.spec, self._options, self.tensors, step)
            late = {
                name
                for (name, *_), use in zip(self.tensors, uses, strict=True)
                if not use.raw and is_late(use.codec)
            }
            self._late = {key: name for key, name in self.names.items() if name in late}
            changes = (use.changes_at for use in uses if use.changes_at is not None)
            self._range = range(step, min(changes, default=sys.maxsize))
        return self._late
