"""What the decoder of one codec is: src/codecs/<name>/<name>_decoder.py holds one, named CODEC.

Tests of its own may follow. All are tried on golden files, and on broken parts beside the library
(test_both_decoders.py).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from spec_hashes import require


@dataclass(frozen=True)
class Coded:
    """A part, or a segment of one, as the frame carries it."""

    chunks: list[bytes]
    count: int  # of elements
    scalars: tuple[int, int] = (0, 0)
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def chunk(self) -> bytes:
        """The only chunk."""
        (chunk,) = self.chunks
        return chunk

    def number(self, scalar: int = 0) -> np.float32:
        """Give the float32 that a scalar holds the bits of."""
        return np.array(self.scalars[scalar], "<u4").view("<f4")[()]


@dataclass(frozen=True)
class Codec:
    """A codec as its spec.md describes it.

    `decode` gets the chunks one by one, or all of them where `chunk_elements` is 0: then chunks
    follow the data. It checks the scalars that the codec has. `parameters` are in canonical order,
    each with the check of its text; what several may not be together is for `check` to refuse.
    Those in `later` came when there were specs without them: a canonical spec leaves them out at
    this default. `variant` gives another codec for parameters that change chunks or scalars.
    """

    name: str
    codec_id: int
    decode: Callable[[Coded], np.ndarray]
    chunk_elements: int = 0
    scalars: int = 0
    width: int = 0  # bytes of every element, or 0 where chunks vary in size
    parameters: Mapping[str, Callable[[str], None]] = field(default_factory=dict)
    check: Callable[[Mapping[str, str]], None] = lambda _parameters: None
    later: Mapping[str, str] = field(default_factory=dict)
    variant: Callable[[Mapping[str, str]], "Codec | None"] = lambda _parameters: None

    def chosen_by(self, parameters: Mapping[str, str]) -> "Codec":
        """Give the codec with these parameters, where they change how a part is cut."""
        return self.variant(parameters) or self


def one_of(*words: str) -> Callable[[str], None]:
    """Make the check of a parameter that is one of these words."""

    def check(text: str) -> None:
        require(text in words, "Corrupt", f"{text} is none of {words}")

    return check


def number(least: float, below: float) -> Callable[[str], None]:
    """Make the check of a float32 parameter: in its range and in its shortest form."""

    def check(text: str) -> None:
        found = re.fullmatch(r"[0-9]+(\.[0-9]+)?", text)
        require(found is not None, "Corrupt", f"{text}: no number")
        value = np.float32(text)
        require(bool(least <= value < below), "Corrupt", f"{text} is out of its range")
        shortest = np.format_float_positional(value, unique=True, trim="-")
        require(text == shortest, "Corrupt", f"{text} is not in its shortest form")

    return check


SHARE = number(np.float32(0.000001), 1)


def of_means(own: str, check: Callable[[str], None]) -> Callable[[str], None]:
    """Check `pull`, which codes means in place of the parameter `own`, its default."""
    return lambda text: None if text == own else check(text)


SWITCH = one_of("on", "off")
