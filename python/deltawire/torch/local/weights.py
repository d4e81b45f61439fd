"""The weights from which rounds of local steps start, and the changes since then."""

import itertools
from collections.abc import Iterable, Sequence

import torch

from deltawire.errors import invalid, make_error, wrong_state
from deltawire.torch.core import arguments
from deltawire.torch.core.module_parameters import (
    ModuleParameters,
    row_major_shape,
    trained_parameters,
)
from deltawire.torch.local.changes import Changes
from deltawire.torch.local.outer import Outer, OuterFactory, digest_of, host_copy
from deltawire.torch.local.visible import Held


class Weights:
    """The trainable parameters of a model, in fragments of neighbouring layers, which consist of
    buckets.

    Holds two more copies of them in float32, on each parameter's own device: the reference (the
    common weights after the last round, equal on all ranks) and the changes (scratch memory of a
    round). While a delayed exchange runs there is a third copy of one fragment, its start: the
    parameters when the exchange began.

    A 16-bit parameter is the rounded reference. To keep the rounding from counting as a change, it
    also has an origin in float32: its value without any training since the round. Changes too small
    for 16 bits accumulate in the reference.

    Args:
        model: the model.
        bucket_bytes: approximate size of a bucket.
        fragments: their number; a layer (the parameters of one module) is never divided.
        outer: makes the optimizer that steps the reference. None: the mean change is added.
        holds_back: changes wait until they are visible (`Held`), in one more float32 copy.

    Attributes:
        names: names of the parameters, in the model's order; a shared one appears once.
        parameters: the model's own tensors.
        devices: of the parameters.
        changes: the memory of a round's changes.
        outer: the outer optimizer, or None.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        bucket_bytes: int,
        fragments: int = 1,
        outer: OuterFactory | None = None,
        holds_back: bool = False,
    ) -> None:
        self.names, self.parameters = trained_parameters(model)
        for name, parameter in zip(self.names, self.parameters, strict=True):
            arguments.check_parameter(name, parameter)
        sizes = [4 * parameter.numel() for parameter in self.parameters]
        self._fragments = fragments_of(self.names, sizes, fragments)
        self.changes = Changes(self.names, self.parameters, self._fragments, bucket_bytes)
        self._in_module = ModuleParameters(model, "LocalSteps")
        self._dtypes = {id(parameter): parameter.dtype for parameter in self.parameters}
        self.devices = [parameter.device for parameter in self.parameters]
        self._reference = [_float32_like(p) for p in self.parameters]
        self._origins = {
            i: _float32_like(p) for i, p in enumerate(self.parameters) if p.dtype != torch.float32
        }
        self._start: list[torch.Tensor] = []
        self._held = Held(self.parameters) if holds_back else None
        self._compared = outer is not None
        self.outer: Outer | None = None
        if outer is not None:
            self._reference = [torch.nn.Parameter(r) for r in self._reference]
            self.outer = Outer(outer, self._reference)
        self.start_from_here()

    @property
    def fragment_count(self) -> int:
        """Number of fragments (>= 1)."""
        return len(self._fragments)

    def named_parameters(self, fragment: int) -> list[tuple[str, torch.nn.Parameter]]:
        """(name, parameter) of a fragment."""
        part = self._fragments[fragment]
        return list(zip(self.names[part], self.parameters[part], strict=True))

    def check_model(self) -> None:
        """Raises DeltawireError ("State") if the model now trains other parameters, or has moved to
        another device."""
        self._in_module.check(self._dtypes, "close this LocalSteps and make a new one")
        for name, parameter, device in zip(self.names, self.parameters, self.devices, strict=True):
            if parameter.device != device:
                raise wrong_state(
                    f"parameter '{name}' is on {parameter.device}, but was on {device} when "
                    "LocalSteps was made; move the model first, then make LocalSteps"
                )

    @property
    def holds_back(self) -> bool:
        """Whether changes wait until they are visible."""
        return self._held is not None

    @property
    def looks_at_values(self) -> bool:
        """Whether `apply_means` and `agreed` read values of the parameters' devices, which are
        then waited for."""
        return bool(self._origins) or self._compared

    def tensors(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of each change, as it is exchanged."""
        shapes = [row_major_shape(change) for change in self.changes.tensors]
        return list(zip(self.names, shapes, strict=True))

    @torch.no_grad()
    def start_from_here(self, compared: bool = False) -> None:
        """Makes the present values of the parameters the reference. With `compared`, ranks compare
        it from now on."""
        torch._foreach_copy_(self._reference, self.parameters)
        for i, origin in self._origins.items():
            origin.copy_(self.parameters[i])
        self._compared = self._compared or compared

    @torch.no_grad()
    def changes_of(self, fragment: int, bucket: int) -> torch.Tensor:
        """Computes a bucket's changes since the reference, to be replaced by their mean. Returns
        their memory, of one dimension."""
        part, block = self.changes.bucket(fragment, bucket)
        changes = self.changes.tensors[part]
        torch._foreach_copy_(changes, self.parameters[part])
        origins = [self._origins.get(i, self._reference[i]) for i in _numbers(part)]
        torch._foreach_sub_(changes, origins)
        if self._held is not None:
            self._held.cut(part, self._reference[part], changes)
        return block

    def agreed(self, fragment: int) -> int:
        """A digest of the reference if it could differ between ranks: because an outer optimizer
        has computed it on each rank, or because it came from outside. 0 if all ranks have it from
        the exchange."""
        return digest_of(self._reference[self._fragments[fragment]]) if self._compared else 0

    @torch.no_grad()
    def mark_start(self, fragment: int) -> None:
        """Remembers the parameters' values: their changes from here on are added to the result of
        this fragment's exchange."""
        parameters = self.parameters[self._fragments[fragment]]
        self._start = [p.detach().to(torch.float32, copy=True) for p in parameters]

    @torch.no_grad()
    def apply_means(self, fragment: int, own_share: float | None = None) -> None:
        """Applies the means, which have replaced the changes: the reference becomes itself plus the
        means, or the result of the outer optimizer. The parameters become the reference, plus their
        changes since `mark_start`, if that was called.

        Args:
            fragment: of these weights.
            own_share: share of the parameters' own values that is kept, instead of their changes:
                they become own_share * parameters + (1 - own_share) * reference.

        Raises DeltawireError ("NotFinite") if a value is too large for a 16-bit parameter."""
        part = self._fragments[fragment]
        changes, parameters = self.changes.tensors[part], self.parameters[part]
        own = self._exact(part) if own_share else []
        if self.outer is not None:
            self.outer.step(part, changes)
        else:
            torch._foreach_add_(self._reference[part], changes)
        if self._held is not None:
            self._held.apply(part)
        if own_share is None:
            moved = [p.float() - s for p, s in zip(parameters, self._start, strict=False)]
        else:
            pairs = zip(own, self._reference[part], strict=False)
            moved = [own_share * (p - r) for p, r in pairs]
        values = self._reference[part]
        if moved:
            values = torch._foreach_add(values, moved)
        self._start = []
        torch._foreach_copy_(parameters, values)
        for at, i in enumerate(_numbers(part)):
            if (origin := self._origins.get(i)) is not None:
                _check_range(self.names[i], self.parameters[i], values[at])
                origin.copy_(self.parameters[i])
                if moved:
                    origin -= moved[at]

    def _exact(self, part: slice) -> list[torch.Tensor]:
        """The parameters as float32: of 16 bits the reference and what they have changed since."""
        return [
            self._reference[i] + (self.parameters[i] - self._origins[i])
            if i in self._origins
            else self.parameters[i].detach().clone()
            for i in _numbers(part)
        ]

    def state(self, running: int | None = None) -> dict:
        """Copies on the CPU of the reference, the parameters, the origins and what is held back, by
        name, and the outer optimizer's state.

        Args:
            running: the fragment whose exchange is over and not applied yet, or None.
        """
        state = {
            "reference": {n: host_copy(r) for n, r in self._named(self._reference)},
            "parameters": {n: host_copy(p) for n, p in self._named(self.parameters)},
            "origins": {self.names[i]: host_copy(o) for i, o in self._origins.items()},
        }
        if self._held is not None:
            held = self._held.values(None if running is None else self._fragments[running])
            state["held"] = {n: host_copy(h) for n, h in self._named(held)}
        return state | ({"outer": self.outer.state()} if self.outer else {})

    def common(self) -> dict:
        """What is equal on all ranks: the reference by name, and the outer optimizer's state. No
        copies, for use until the next `apply_means`."""
        reference = {name: each.detach() for name, each in self._named(self._reference)}
        outer = self.outer.optimizer.state_dict() if self.outer else None
        return {"reference": reference, "outer": outer}

    def take_over(self, common: dict) -> None:
        """Begins a round with another rank's `common`. Raises InvalidArgumentError for that of
        another model, or of another outer optimizer."""
        reference, state = common["reference"], self.state()
        self._check_tensors("reference", reference, range(len(self.names)))
        state["reference"] = reference
        given = {n: reference[n].to(kept.dtype) for n, kept in state["parameters"].items()}
        state["parameters"] = given
        state["origins"] = {n: given[n].float() for n in state["origins"]}
        if self.outer:
            state["outer"] = common["outer"]
        self.check_state(state)
        self.load(state)

    def state_under_way(self, fragment: int) -> dict:
        """Copies on the CPU, by name, of a fragment's means that are not applied yet, and of its
        parameters when the exchange began."""
        part = self._fragments[fragment]
        names, means = self.names[part], self.changes.tensors[part]
        return {
            "means": dict(zip(names, map(host_copy, means), strict=True)),
            "start": dict(zip(names, map(host_copy, self._start), strict=False)),
        }

    def check_state(self, state: dict) -> None:
        """Raises InvalidArgumentError for the `state()` of another model."""
        every, dtypes = slice(0, len(self.names)), [p.dtype for p in self.parameters]
        self._check_tensors("reference", state["reference"], _numbers(every))
        self._check_tensors("parameters", state["parameters"], _numbers(every), dtypes)
        self._check_tensors("origins", state["origins"], self._origins)
        if self._held is not None:
            self._check_tensors("held", state["held"], _numbers(every))
        if self.outer:
            self.outer.check_state(state["outer"])

    def check_state_under_way(self, state: dict, fragment: int) -> None:
        """Raises InvalidArgumentError for the `state_under_way()` of another model."""
        part = _numbers(self._fragments[fragment])
        self._check_tensors("means", state["means"], part)
        if state["start"]:  # a rank that waited for the exchange has none
            self._check_tensors("start", state["start"], part)

    def _check_tensors(
        self, key: str, given: dict, part: Iterable[int], dtypes: Sequence[torch.dtype] = ()
    ) -> None:
        """Checks the tensors of these parameters; without `dtypes` they must be float32."""
        if list(given) != [self.names[i] for i in part]:
            raise invalid(f"the state's {key} are of another model")
        for i in part:
            name, shape = self.names[i], self.parameters[i].shape
            tensor, dtype = given[name], dtypes[i] if dtypes else torch.float32
            if tensor.shape != shape or tensor.dtype != dtype:
                raise invalid(
                    f"the state's {key} have '{name}' as {tensor.dtype} {tuple(tensor.shape)}, "
                    f"the model as {dtype} {tuple(shape)}"
                )

    @torch.no_grad()
    def load(self, state: dict) -> None:
        """Restores what `state()` returned, after `check_state`."""
        torch._foreach_copy_(self._reference, [state["reference"][n] for n in self.names])
        torch._foreach_copy_(self.parameters, [state["parameters"][n] for n in self.names])
        for i, origin in self._origins.items():
            origin.copy_(state["origins"][self.names[i]])
        self._start = []
        if self._held is not None:
            self._held.load([state["held"][n] for n in self.names])
        if self.outer:
            self.outer.load(state["outer"])

    @torch.no_grad()
    def load_under_way(self, state: dict, fragment: int) -> None:
        """Restores what `state_under_way()` returned, after `load`."""
        part = self._fragments[fragment]
        names, changes = self.names[part], self.changes.tensors[part]
        torch._foreach_copy_(changes, [state["means"][n] for n in names])
        self._start = [
            state["start"][name].to(device, copy=True)
            for name, device in zip(names, self.devices[part], strict=True)
            if state["start"]
        ]

    def _named(self, tensors: list[torch.Tensor]) -> Iterable[tuple[str, torch.Tensor]]:
        return zip(self.names, tensors, strict=True)


def _numbers(part: slice) -> range:
    return range(part.start, part.stop)


def _float32_like(parameter: torch.Tensor) -> torch.Tensor:
    return torch.empty(parameter.shape, dtype=torch.float32, device=parameter.device)


def _check_range(name: str, parameter: torch.Tensor, values: torch.Tensor) -> None:
    if bool((torch.isinf(parameter) & torch.isfinite(values)).any()):
        raise make_error(
            "NotFinite",
            f"parameter '{name}' has grown beyond what {parameter.dtype} can say "
            f"({torch.finfo(parameter.dtype).max:g}); train it as float32, or as bfloat16",
        )


def fragments_of(names: list[str], sizes: list[int], count: int) -> list[slice]:
    """Divides a model's parameters, in order, into fragments of whole layers and about the same
    size. Raises InvalidArgumentError if there are fewer layers than fragments.

    Args:
        names: of the parameters; those of one module are adjacent.
        sizes: in bytes.
        count: number of fragments (>= 1).
    """
    arguments.check_positive("fragments", count)
    ends = [
        i + 1
        for i, name in enumerate(names)
        if i + 1 == len(names) or _layer(names[i + 1]) != _layer(name)
    ]
    if count > len(ends):
        raise invalid(
            f"fragments={count}, but the model has {len(ends)} layers with parameters that are "
            "trained"
        )
    upto = [0, *itertools.accumulate(sizes)]
    fragments, start = [], 0
    for number in range(1, count):
        # Leave at least one layer for each fragment that follows.
        possible = [end for end in ends[: len(ends) - (count - number)] if end > start]
        wanted = upto[-1] * number / count
        end = min(possible, key=lambda end, wanted=wanted: abs(upto[end] - wanted))
        fragments.append(slice(start, end))
        start = end
    return [*fragments, slice(start, len(names))]


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
