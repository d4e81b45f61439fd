"""The tensors of a model that an optimizer steps by a rule, because of their codecs."""

import sys
from collections.abc import Sequence

from deltawire import _core
from deltawire.torch.core import arguments


class CodedTensors:
    """Which tensors of a model have one of these codecs, step by step.

    Args:
        min_elements: as for `register`.
        names: id(parameter) -> name.
        tensors: (name, shape, name of the dtype) of each.
        world_size: of the exchange.
        codecs: with what stands before them.
    """

    def __init__(
        self,
        spec: _core.Spec,
        min_elements: int,
        names: dict[int, str],
        tensors: list[tuple],
        world_size: int,
        codecs: Sequence[str] = (),
    ) -> None:
        self.spec, self.min_elements, self.world_size = spec, min_elements, world_size
        self.names, self.tensors, self.codecs = names, tensors, codecs
        self._options = arguments.Coding(min_elements, threads=1).options()
        self._range = range(0)  # the steps for which `_chosen` is right
        self._chosen: dict[int, str] = {}

    def of(self, codecs: Sequence[str]) -> "CodedTensors":
        """Those of the same model that have one of these codecs."""
        return self._like(self.spec, codecs)

    def by(self, spec: _core.Spec) -> "CodedTensors":
        """The same model by another spec."""
        return self._like(spec)

    def _like(self, spec: _core.Spec, codecs: Sequence[str] = ()) -> "CodedTensors":
        model = self.min_elements, self.names, self.tensors, self.world_size
        return CodedTensors(spec, *model, codecs)

    def ever(self) -> tuple[int, dict[int, str]]:
        """(The first step that has any, those of all steps): id(parameter) -> name."""
        first, step, found = 0, 0, {}
        while step < sys.maxsize:
            found |= self.at(step)
            step = self._range.stop
            first = first if found else step
        return first, found

    def at(self, step: int) -> dict[int, str]:
        """Those of this step: id(parameter) -> name."""
        if step not in self._range:
            uses = _core.explain(self.spec.text, self._options, self.tensors, step)
            chosen = {
                name
                for (name, *_), use in zip(self.tensors, uses, strict=True)
                if use.codec in self.codecs
            }
            self._chosen = {key: name for key, name in self.names.items() if name in chosen}
            changes = (use.changes_at for use in uses if use.changes_at is not None)
            self._range = range(step, min(changes, default=sys.maxsize))
        return self._chosen
