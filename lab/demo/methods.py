"""The rows of the demo. To add a row, add a line to `METHODS`."""

import dataclasses


class UnknownMethod(Exception):
    """A method that is neither in the table nor a codec's spec; one line says so."""


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to exchange gradients or weights.

    Attributes:
        name: on the command line and in results.json.
        spec: of deltawire's reducer; None is DDP's own all-reduce.
        label: in tables and figures.
        pattern: "direct", "ring" or "gather": how often a rank sends each value.
        local_steps: 0 exchanges gradients, in DDP's hook, in every step; n >= 1 exchanges weight
            updates after n optimizer steps of each rank, by deltawire.torch.LocalSteps.
        late: most of a gradient arrives in later steps, where an optimizer's momentum multiplies
            it: the row trains without momentum (see Settings.of_row).
        optimizer: "sgd" or "adamw"; None: that of the command line.
    """

    name: str
    spec: str | None
    label: str
    pattern: str = "direct"
    local_steps: int = 0
    late: bool = False
    optimizer: str | None = None

    @property
    def steps_per_exchange(self) -> int:
        """Optimizer steps from one exchange to the next."""
        return max(1, self.local_steps)


BASE = "fp32"  # what times_smaller compares with
PLAIN = "plain"  # what times_faster compares with

METHODS = (
    Method(PLAIN, None, "plain DDP", pattern="ring"),
    Method(BASE, "fp32", "fp32"),
    Method("bf16", "bf16", "bf16"),
    Method("gcomp", "gcomp", "GComp", pattern="ring"),
    Method("3lc:s=1.00", "3lc:s=1.00", "3LC s=1.00"),
    Method("3lc:s=1.75", "3lc:s=1.75", "3LC s=1.75"),
    Method(
        "sbc:p=1%@1", "sbc:p=1%", "SBC p=1%, 1 step", pattern="gather", local_steps=1, late=True
    ),
    Method("sbc:p=1%@10", "sbc:p=1%", "SBC p=1%, 10 steps", pattern="gather", local_steps=10),
    Method("fastsgd:tau=auto", "fastsgd:tau=auto", "FastSGD", pattern="gather"),
    Method("fp32/adamw", "fp32", "fp32, AdamW", optimizer="adamw"),
    Method("3lc/adamw", "3lc:s=1.00", "3LC s=1.00, AdamW", optimizer="adamw"),
)

_MOST_LOCAL_STEPS = 10_000
OPTIMIZERS = {"sgd": "SGD", "adamw": "AdamW"}  # PyTorch's, by their names in the demo


def names() -> list[str]:
    """The names of all rows, in the table's order."""
    return [method.name for method in METHODS]


def find(name: str) -> Method:
    """The row of that name, or a row for any other reducer spec, such as "3lc:s=1.5" or
    "ring(bf16)"; "spec@n" exchanges weight updates after n local steps, and "/sgd" or "/adamw" at
    the end is the row's own optimizer.

    Raises:
        UnknownMethod: neither (the message lists the known names), or a bad parameter.
    """
    for method in METHODS:
        if method.name == name:
            return method
    given, optimizer = name, None
    for each in OPTIMIZERS:
        if given.endswith(f"/{each}"):
            given, optimizer = given.removesuffix(f"/{each}"), each
    spec, at, steps = given.partition("@")
    if at and not (steps.isdecimal() and 1 <= int(steps) <= _MOST_LOCAL_STEPS):
        raise UnknownMethod(
            f"method '{name}': write the number of local steps per exchange after the @, "
            f"1 ... {_MOST_LOCAL_STEPS:,}"
        )
    # Here: the table alone is of use without the compiled extension.
    from deltawire import arguments, errors

    try:
        parsed = arguments.spec_of(spec)
    except errors.InvalidArgumentError as cause:
        raise UnknownMethod(
            f"method '{name}': {cause}. Known methods: {', '.join(names())}, or any spec of a "
            "codec or reducer"
        ) from cause
    local_steps = int(steps or 0)
    late = local_steps <= 1 and any(rule.is_late for rule in parsed.rules)
    return Method(name, spec, name, parsed.pattern, local_steps, late, optimizer)
