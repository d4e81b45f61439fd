"""The codec of each tensor under a spec, and the bytes it took, as a table."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from deltawire import _core
from deltawire.errors import wrong_type
from deltawire.torch.core import arguments
from deltawire.torch.core.module_parameters import ModuleParameters, row_major_shape

_COLUMNS = ("tensor", "shape", "elements", "bytes", "smaller", "residual", "momentum", "codec")
_LEFT = ("tensor", "shape", "codec")  # the others are numbers


@dataclasses.dataclass(frozen=True)
class TensorRow:
    """One tensor of the model, and what this rank sends of it.

    Attributes:
        name, shape, elements: as the codec sees the tensor, row-major; one dimension if its memory
            has another order.
        bare_bytes: size of its values, 4 or 2 bytes each.
        codec: in the next step, canonical, with its preprocessing ("with momentum=0.9").
        raw: the tensor has fewer than min_elements elements and travels as fp32.
        changes_at, next_codec: the first step with another codec, and that codec; else None.
        most_bytes: upper bound of one encoding in the next step, without message headers.
        bytes_sent: by this rank in the last step, every copy counted, without message headers; None
            before the first step. With "ring" and "hierarchical" without the means of other ranks,
            which it forwards.
        raw_bytes: the same as bare values; None before the first step.
        residual_bytes, momentum_bytes: memory of the residual (with its copy, if steps can be
            reverted exactly), and of momentum and clipping before the codec.
        residual_norm: L2 norm of this rank's residuals, of its own values and of the means that it
            owns. It grows with the loss scale. NaN if the GPU did not give them in time.
        rate_times: by how much the optimizer's learning rate is multiplied in the next step, in
            place of its momentum, because the tensor's gradients arrive late (see `register`);
            None: the optimizer steps it as it is.
        beta1: Adam's for this tensor in the next step, for the same reason; None: the optimizer's.
        factored_second_moment: Adam's is that of the exact gradients' rows and columns, whose mean
            squares are sent beside the gradient, among `Explanation.other_bytes`.
    """

    name: str
    shape: tuple[int, ...]
    elements: int
    bare_bytes: int
    codec: str
    raw: bool
    changes_at: int | None
    next_codec: str | None
    most_bytes: int
    bytes_sent: int | None
    raw_bytes: int | None
    residual_bytes: int
    momentum_bytes: int
    residual_norm: float
    rate_times: float | None = None
    beta1: float | None = None
    factored_second_moment: bool = False

    @property
    def times_smaller(self) -> float | None:
        """The compression ratio in the last step; before the first step a lower bound. None if
        nothing was sent."""
        if self.bytes_sent is None:
            return self.bare_bytes / self.most_bytes if self.most_bytes else None
        return self.raw_bytes / self.bytes_sent if self.bytes_sent else None


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation:
    """A model's tensors under a spec. str() and repr() of it are a table.

    Attributes:
        spec: canonical.
        step: the next step, whose codecs the rows name; of `LocalSteps` the next round.
        world_size: number of ranks; None without an exchange.
        rows: one for each tensor that is exchanged, in the model's order.
        other_bytes: bytes of the last step that belong to no row: message headers, mean squares of
            gradients' lines, and with "ring" and "hierarchical" what was forwarded. None before the
            first step.
        coded_on: the device that encodes and decodes, "cpu" or "cuda:0".
        carrier: of messages, "tcp" or, the process group, "group".
        note: a line above the table, or "".
        lines: to each rank, as they were when the ranks met: seconds there and back, the
            congestion control that the kernel gave, and how many TCP streams carry the messages;
            0, "" and 1 where it is no TCP. Empty without an exchange.
    """

    spec: str
    step: int
    world_size: int | None
    rows: tuple[TensorRow, ...]
    other_bytes: int | None
    coded_on: str = "cpu"
    carrier: str = "tcp"
    note: str = ""
    lines: tuple[tuple[float, str, int], ...] = ()

    @property
    def pattern(self) -> str:
        """The exchange pattern."""
        return _core.Spec(self.spec).pattern

    def with_fields(self, fields: dict[str, dict[str, float]]) -> "Explanation":
        """The same, with some fields of rows by their names."""
        rows = (dataclasses.replace(row, **fields.get(row.name, {})) for row in self.rows)
        return dataclasses.replace(self, rows=tuple(rows))

    @property
    def total(self) -> TensorRow:
        """The sums of all rows, named "together" and without a codec. `bytes_sent` leaves out
        `other_bytes`."""
        sent = any(row.bytes_sent is not None for row in self.rows)
        sums = {
            key: sum(getattr(row, key) or 0 for row in self.rows)
            for key in ("elements", "bare_bytes", "most_bytes", "residual_bytes", "momentum_bytes")
        }
        for key in ("bytes_sent", "raw_bytes"):
            sums[key] = sum(getattr(row, key) for row in self.rows) if sent else None
        sums["residual_norm"] = math.hypot(*(row.residual_norm for row in self.rows))
        return TensorRow(
            "together", (), codec="", raw=False, changes_at=None, next_codec=None, **sums
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the attributes, `pattern` and `total`; each row has `times_smaller`, too."""
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "pattern": self.pattern,
            "rows": [_as_dict(row) for row in self.rows],
            "total": _as_dict(self.total),
            "lines": [list(line) for line in self.lines],
        }

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        sent = self.total.bytes_sent is not None
        lines = [list(_COLUMNS), *(_cells(row) for row in self.rows), _cells(self.total)]
        if sent:
            lines.append(["other", "", "", f"{self.other_bytes:,}", *[""] * 4])
        widths = [max(len(line[i]) for line in lines) for i in range(len(_COLUMNS))]
        table = ["  ".join(map(_aligned, _COLUMNS, line, widths)).rstrip() for line in lines]
        head = [self.note] * bool(self.note) + [self._heading(sent)]
        return "\n".join([*head, *table, "", *self._legend(sent)])

    def _heading(self, sent: bool) -> str:
        ranks = f", {self.world_size} ranks" if self.world_size is not None else ""
        took = "and what the last one took" if sent else "nothing was sent yet"
        if self.coded_on != "cpu":
            ranks += f", coded on {self.coded_on}"
        if self.carrier != "tcp":
            ranks += ", carried by the process group"
        return f"{self.pattern}{ranks}: the codecs of step {self.step}, {took}"

    def _legend(self, sent: bool) -> Iterable[str]:
        if sent:
            yield "bytes: sent by this rank in the last step, every copy counted."
            yield "smaller: how many times, than the same as bare values."
            passes_on = self.pattern.startswith(("ring", "hierarchical"))
            passed_on = " and what this rank passes on for others" if passes_on else ""
            beside = any(row.factored_second_moment for row in self.rows)
            squares = ", mean squares of gradients' rows and columns" if beside else ""
            yield f"other: heads of messages{squares}{passed_on}."
        else:
            yield "bytes: of one encoding, at most; the values decide how many it will be."
            yield "smaller: how many times, than bare values, at least."
        ways: dict[tuple[str, int], list[int]] = {}
        for rank, (_, control, streams) in enumerate(self.lines):
            ways.setdefault((control, streams), []).append(rank)
        for (control, streams), ranks in ways.items():
            if control:
                longest = max(self.lines[rank][0] for rank in ranks)
                names = ", ".join(map(str, ranks))
                far = f"{1e3 * longest:.3g} ms there and back"
                by = f", {streams} streams each" if streams > 1 else ""
                yield f"lines: {control} to ranks {names}, {far}{by}."
        if any(row.raw for row in self.rows):
            yield "raw: below min_elements; a head would cost more than a codec saves."
        if self.total.residual_bytes:
            yield "residual: memory of what was not sent yet; it leaves with later steps."
        if self.total.momentum_bytes:
            yield "momentum: memory of momentum and clipping before the codec."
        if any(row.rate_times is not None for row in self.rows):
            yield "rate x: times the optimizer's learning rate, in place of its momentum."
        if any(row.beta1 is not None for row in self.rows):
            yield "beta1: in place of the optimizer's, which would delay further what arrives late."
        if any(row.factored_second_moment for row in self.rows):
            yield "factored second moment: Adam's, of exact gradients instead of what arrives."


def explain(
    model: torch.nn.Module, spec: str, *, min_elements: int = 256, step: int = 0
) -> Explanation:
    """Shows, before `register` or `LocalSteps`, which codec a spec gives each tensor of a model,
    with an upper bound of its bytes. Nothing is exchanged; no process group is needed.

    Args:
        model: a DistributedDataParallel model or a bare module. Only parameters that require
            gradients count.
        spec, min_elements: as for `register`.
        step: the step whose codecs are shown.

    Raises:
        InvalidArgumentError (a ValueError): a bad spec or number.
        DTypeError (a TypeError): no model, or a parameter that can't be exchanged.
    """
    if not isinstance(model, torch.nn.Module):
        raise wrong_type(f"explain takes a torch.nn.Module, not {type(model).__name__}")
    module = model.module if isinstance(model, DistributedDataParallel) else model
    arguments.check_count("step", step)
    options = arguments.Coding(min_elements, threads=1).options()
    names = ModuleParameters(module).names()
    tensors = []
    for parameter in module.parameters():
        if parameter.requires_grad:
            arguments.check_parameter(names[id(parameter)], parameter)
            name, dtype = names[id(parameter)], arguments.dtype_name(parameter.dtype)
            tensors.append((name, row_major_shape(parameter), dtype))
    spec = arguments.spec_of(arguments.named(spec, "explain")).text
    return explanation(spec, tensors, _core.explain(spec, options, tensors, step), step)


def explanation(
    spec: str,
    tensors: Sequence[tuple],
    uses: Sequence[_core.TensorUse],
    step: int,
    sent: tuple[int, int | None] | None = None,
) -> Explanation:
    """Makes an Explanation from the core's answer.

    Args:
        spec, step: as its attributes.
        tensors: (name, shape) or (name, shape, name of the dtype) of each.
        uses: the core's answer, one for each tensor.
        sent: (world size, bytes of the last step with headers, or None if unknown).
    """
    world_size, all_bytes = sent or (None, None)
    known = all_bytes is not None and any(use.raw_bytes for use in uses)
    rows = tuple(
        TensorRow(
            name=name,
            shape=tuple(shape),
            elements=math.prod(shape),
            bare_bytes=math.prod(shape) * getattr(torch, dtype[0] if dtype else "float32").itemsize,
            codec=use.codec,
            raw=use.raw,
            changes_at=use.changes_at,
            next_codec=use.next_codec or None,
            most_bytes=use.most_bytes,
            bytes_sent=use.bytes_sent if known else None,
            raw_bytes=use.raw_bytes if known else None,
            residual_bytes=use.residual_bytes,
            momentum_bytes=use.momentum_bytes,
            residual_norm=use.residual_norm,
        )
        for (name, shape, *dtype), use in zip(tensors, uses, strict=True)
    )
    others = all_bytes - sum(row.bytes_sent for row in rows) if known else None
    return Explanation(spec, step, world_size, rows, others)


def _as_dict(row: TensorRow) -> dict:
    return {**dataclasses.asdict(row), "times_smaller": row.times_smaller}


def _cells(row: TensorRow) -> list[str]:
    sent = row.most_bytes if row.bytes_sent is None else row.bytes_sent
    codec = f"{row.codec} (raw)" if row.raw else row.codec
    if row.rate_times is not None:
        codec += f"; rate x {row.rate_times:.3g}"
    if row.beta1 is not None:
        codec += f"; beta1 {row.beta1:g}"
    if row.factored_second_moment:
        codec += "; factored second moment"
    if row.changes_at is not None:
        codec += f"; from step {row.changes_at:,} on {row.next_codec}"
    return [
        row.name,
        " x ".join(map(str, row.shape)),
        f"{row.elements:,}",
        f"{sent:,}",
        "-" if row.times_smaller is None else f"{row.times_smaller:.1f}",
        _memory(row.residual_bytes),
        _memory(row.momentum_bytes),
        codec,
    ]


def _memory(count: int) -> str:
    """The size in KiB or MiB, or a dash for 0."""
    if count == 0:
        return "-"
    return f"{count / 2**10:,.1f} KiB" if count < 2**20 else f"{count / 2**20:,.1f} MiB"


def _aligned(column: str, cell: str, width: int) -> str:
    return cell.ljust(width) if column in _LEFT else cell.rjust(width)
