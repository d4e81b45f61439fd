"""The rows of the demo. A new row is one line in `METHODS`."""

import dataclasses

import numpy as np


class UnknownMethod(Exception):
    """A method that is neither in the table nor a codec's spec: one line."""


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to exchange gradients.

    Attributes:
        name: on the command line and in results.json.
        spec: for deltawire.torch.register; None is DDP's own all-reduce.
        label: in tables and figures.
        pattern: whose fp32 bytes `times_smaller` compares with: "direct" or "ring".
    """

    name: str
    spec: str | None
    label: str
    pattern: str = "direct"


BASE = "fp32"  # what times_faster compares with
PLAIN = "plain"

METHODS = (
    Method(PLAIN, None, "plain DDP", pattern="ring"),
    Method(BASE, "fp32", "fp32"),
    Method("bf16", "bf16", "bf16"),
    Method("3lc:s=1.00", "3lc:s=1.00", "3LC s=1.00"),
    Method("3lc:s=1.75", "3lc:s=1.75", "3LC s=1.75"),
)


def names() -> list[str]:
    """Of all rows, in the table's order."""
    return [method.name for method in METHODS]


def find(name: str) -> Method:
    """The row of that name, or a row for any other codec spec, such as "3lc:s=1.5".

    Raises:
        UnknownMethod: neither (the message lists the known names), or a bad parameter.
    """
    for method in METHODS:
        if method.name == name:
            return method
    import deltawire  # here: the table alone is of use without the compiled extension

    known = {codec.name for codec in deltawire.codecs()}
    if name.partition(":")[0] in known:
        try:
            deltawire.encode(np.zeros(1, dtype=np.float32), name)
        except deltawire.InvalidArgumentError as cause:
            raise UnknownMethod(f"method '{name}': {cause}") from cause
        return Method(name, name, name)
    raise UnknownMethod(
        f"unknown method '{name}'; known: {', '.join(names())}, or any spec of the codecs "
        f"{', '.join(sorted(known))}"
    )
