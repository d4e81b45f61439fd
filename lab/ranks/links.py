"""The rate of a link, as text ("100mbit") and as a number."""

import argparse
import dataclasses
import re

BURST_BYTES = 16_384

_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)")


@dataclasses.dataclass(frozen=True)
class Link:
    """Bytes a second for each direction of a rank; None is the loopback without a limit."""

    text: str
    bytes_per_second: float | None


class LinkError(argparse.ArgumentTypeError, ValueError):
    """A text that is no link. argparse shows the message of such an error alone: of another
    ValueError it says "invalid parse_link value".
    """


def parse_link(text: str) -> Link:
    """ "100mbit" (tc's units: kbit, mbit, gbit) or "none".

    Raises:
        LinkError (a ValueError): with one line that says what is allowed.
    """
    wanted = text.strip().lower()
    if wanted == "none":
        return Link("none", None)
    match = _PATTERN.fullmatch(wanted)
    bits_per_second = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 8e3 <= bits_per_second <= 1e12:
        raise LinkError(
            f"'{text}' is not a link; write e.g. 100mbit, 2.5gbit or 500kbit (8kbit ... 1000gbit), "
            "or none"
        )
    return Link(wanted, bits_per_second / 8)


def link_in_words(text: str) -> str:
    """ "100mbit" as "links of 100 Mbit/s"; "none" as "the bare loopback"."""
    match = _PATTERN.fullmatch(text)
    return f"links of {match[1]} {match[2].capitalize()}/s" if match else "the bare loopback"


def ring_bytes(tensor_bytes: float, world_size: int) -> float:
    """The bytes that a rank sends in a ring all-reduce, and on average with `direct`: 2 (N - 1) / N
    times the tensor's.
    """
    return 2 * (world_size - 1) / world_size * tensor_bytes
