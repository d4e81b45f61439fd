"""Arguments that all interfaces share, and their checks."""

import dataclasses
import math
import numbers
import operator
import os
import re
from typing import Literal, TypedDict, get_args

from deltawire import _core
from deltawire.errors import invalid

_SECRET_BYTES = 16
_MOST = (1 << 63) - 1  # what the core's counts hold
_MOST_THREADS = (1 << 31) - 1  # and its number of threads, of which it takes fewer
_MOST_RANKS = 65_535  # messages have ranks in 16 bits

# For type checkers; the core says what is wrong with other values.
Carrier = Literal["tcp", "group"]
Encryption = Literal["auto", "required", "off"]
Nonfinite = Literal["error", "pass"]
Revert = Literal["exact", "fold"]
Tier = Literal["lossless", "near-lossless", "lossy"]


@dataclasses.dataclass(frozen=True)
class Coding:
    """The arguments by which messages are coded, by their names in `Session` and
    `deltawire.torch.register`."""

    min_elements: int = 256
    threads: int | None = None
    revert: Revert = "exact"
    nonfinite: Nonfinite = "error"

    def options(self, device: object = None) -> _core.ReducerOptions:
        """As the core takes them; `device`: the `DeviceParts` that code there, or None for the CPU.
        Raises InvalidArgumentError."""
        check_count("min_elements", self.min_elements)
        if self.threads is not None:
            check_whole("threads", self.threads, 1, _MOST_THREADS)
        revert, nonfinite = str(self.revert), str(self.nonfinite)
        return _core.ReducerOptions(self.min_elements, revert, self.threads or 0, nonfinite, device)

    def terms(self, spec: str) -> dict[str, object]:
        """What must be equal on all ranks, by name, with a canonical spec."""
        return {
            "spec": spec,
            "min_elements": self.min_elements,
            "revert": self.revert,
            "nonfinite": self.nonfinite,
        }


@dataclasses.dataclass(frozen=True)
class Connection:
    """The arguments by which a rank of a process group connects to the others, by their names in
    `deltawire.torch.register`."""

    interface: str | None = None
    port: int | str | None = None
    token: str | bytes | None = None
    encryption: Encryption | None = None
    link: _core.LinkShape | None = None
    connect_timeout: float = 60.0
    carrier: Carrier = "tcp"

    @classmethod
    def of(cls, where: str, keywords: dict[str, object]) -> "Connection":
        """Of the further keywords of a call; raises TypeError for one that is not among these."""
        known = [each.name for each in dataclasses.fields(cls)]
        for name in keywords:
            if name not in known:
                raise TypeError(f"{where} got an unexpected keyword argument {name!r}")
        return cls(**keywords)

    def check_carrier(self, encryption: str) -> None:
        """Raises InvalidArgumentError for what is no carrier, and for encryption that the group
        does not have."""
        if self.carrier not in get_args(Carrier):
            raise invalid(f'carrier={self.carrier!r} is unknown; use "tcp" or "group"')
        if self.carrier == "group" and encryption == "required":
            raise invalid(
                'carrier="group" and encryption="required" don\'t go together: the process group '
                "carries messages as they are; leave one of them out"
            )

    def check_by_tcp(self, what: str) -> None:
        """Raises InvalidArgumentError for another carrier, which `what` does not take."""
        if self.carrier != "tcp":
            raise invalid(
                f"{what} takes no carrier={self.carrier!r}; leave it out: only register with a "
                "codec, and LocalSteps, let the process group carry messages"
            )


class ConnectionKeywords(TypedDict, total=False):
    """The fields of `Connection`, for type checkers."""

    interface: str | None
    port: int | str | None
    token: str | bytes | None
    encryption: Encryption | None
    link: _core.LinkShape | None
    connect_timeout: float
    carrier: Carrier


def check_spec(spec: str) -> str:
    """Returns the spec. Raises TypeError for anything but text."""
    if not isinstance(spec, str):
        raise TypeError(
            "a spec is text, such as '3lc:s=1.75' or 'direct(conv*: 3lc, rest fp32)', not "
            f"{type(spec).__name__}"
        )
    return spec


def spec_of(spec: str) -> _core.Spec:
    """The reducer's spec. In the pattern "hierarchical:group=host" the number of ranks on this host
    takes the place of "host". Raises InvalidArgumentError (a ValueError), TypeError."""
    return _core.Spec(check_spec(spec), ranks_of_host=ranks_of_host())


def ranks_of_host() -> int:
    """By torchrun's LOCAL_WORLD_SIZE; 0 without it."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(ranks) if re.fullmatch("[0-9]{1,9}", ranks) else 0


def require_use(spec: _core.Spec, argument: str) -> None:
    """Raises InvalidArgumentError if `argument`, which has to do with significance, would have no
    effect."""
    if spec.uses_significance:
        return
    users = [info.name for info in _core.registered_codecs() if info.significance]
    advice = f", or use a codec that cuts by it: {', '.join(users)}" if users else ""
    raise invalid(f"{argument} has no effect with '{spec.given}'; leave it out{advice}")


def check_reducer(spec: str, options: _core.ReducerOptions) -> None:
    """Raises InvalidArgumentError for options that the spec's exchange can't have."""
    _core.explain(spec, options, [], 0)


def check_listening(interface: str | None, link: _core.LinkShape | None) -> None:
    """Raises TypeError for what is no name of an interface, or no link's shape."""
    check_kind("interface", interface, str, "text")
    check_kind("link", link, _core.LinkShape, "a deltawire.LinkShape")


def check_kind(name: str, value: object, kind: type | tuple[type, ...], words: str) -> None:
    """Raises TypeError for anything but a `kind`, in words, or None."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be {words} or None, not {type(value).__name__}")


def timeout_in_ms(seconds: float, name: str = "timeout") -> int:
    """Whole milliseconds, at least one; raises InvalidArgumentError."""
    if not is_number(seconds):
        raise invalid(f"{name}={seconds!r} must be a number of seconds")
    if not (0 < seconds <= 86_400) or math.isnan(seconds):
        raise invalid(f"{name}={seconds} must be 0 < seconds <= 86,400")
    return max(1, round(1e3 * seconds))


def ports(port: int | str | None) -> tuple[int, int]:
    """First and last port of a range such as "29600-29699", by default of DELTAWIRE_PORT; (0, 0)
    means any free one. Raises InvalidArgumentError."""
    source = "port"
    if port is None:
        source, port = "DELTAWIRE_PORT", os.environ.get("DELTAWIRE_PORT") or 0
    found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", str(port), re.ASCII)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (-1, -1)
    if not (1 <= first <= last <= 65_535 or first == last == 0):
        raise invalid(
            f'{source}={port!r} must be a port such as 29600, a range such as "29600-29699" with '
            "a port for every rank of this machine, or 0 for any free one"
        )
    return first, last


def secret(token: str | bytes | None) -> bytes | None:
    """The bytes of `token`, by default of DELTAWIRE_TOKEN, without a line break at the end; None if
    neither is set. Raises InvalidArgumentError."""
    if token is None:
        token = os.environ.get("DELTAWIRE_TOKEN") or None
    if token is None:
        return None
    if isinstance(token, str):
        token = os.fsencode(token)
    if isinstance(token, bytes):
        token = _core.trim_secret(token)
    if not isinstance(token, bytes) or len(token) < _SECRET_BYTES:
        raise invalid(
            f"the token (token= or DELTAWIRE_TOKEN) must be text or bytes, {_SECRET_BYTES} bytes "
            "or more, hard to guess: make one with `openssl rand -hex 32`"
        )
    return token


def encryption(setting: str | None, has_secret: bool, default: str = "auto") -> str:
    """`setting`, or else DELTAWIRE_ENCRYPTION, or else `default`. Raises InvalidArgumentError for
    what is none, and for "required" without a secret of the ranks' own."""
    if setting is None:
        setting = os.environ.get("DELTAWIRE_ENCRYPTION") or default
    _core.check_encryption(str(setting))
    if setting == "required" and not has_secret:
        raise invalid(
            'encryption="required" needs a token that the network has not seen: set '
            "DELTAWIRE_TOKEN to the same value on every rank, or pass token=; make one with "
            "`openssl rand -hex 32`"
        )
    return setting


def check_unicode(name: str) -> None:
    """Raises InvalidArgumentError for a name with a lone surrogate, which the core can't take."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise invalid(f"the name {name!r} is not Unicode text") from None


def check_positive(name: str, value: int) -> int:
    """The whole number, NumPy's too, 1 or more, of 63 bits; raises InvalidArgumentError."""
    return check_whole(name, value, 1, _MOST)


def check_count(name: str, value: int) -> int:
    """The whole number, NumPy's too, 0 or more, of 63 bits; raises InvalidArgumentError."""
    return check_whole(name, value, 0, _MOST)


def check_rank(rank: int, world_size: int = _MOST_RANKS) -> tuple[int, int]:
    """Both; raises InvalidArgumentError but for one of `world_size` ranks, 65,535 at most."""
    rank, world_size = check_count("rank", rank), check_positive("world_size", world_size)
    if rank >= world_size or world_size > _MOST_RANKS:
        raise invalid(
            f"rank={rank} must be below world_size={world_size}, and that at most {_MOST_RANKS:,}"
        )
    return rank, world_size


def check_whole(name: str, value: int, least: int, most: int) -> int:
    """The whole number, NumPy's too, `least` ... `most`; raises InvalidArgumentError."""
    try:
        whole = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        whole = least - 1
    if not least <= whole <= most:
        end = f"to {most:,}" if whole > most else "or more"
        raise invalid(f"{name}={value!r:.80} must be a whole number, {least} {end}")
    return whole


def is_number(value: object) -> bool:
    """Whether it is a real number, NumPy's too."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_scale(scale: float) -> None:
    """Raises InvalidArgumentError for anything but a finite number above 0."""
    check_finite("scale", scale)
    if scale <= 0:
        raise invalid(f"scale={scale!r} must be above 0")


def check_finite(name: str, value: float) -> None:
    """Raises InvalidArgumentError for anything but a finite number, or what becomes one by float():
    NumPy's numbers, tensors of one element."""
    try:
        finite = math.isfinite(value) and not isinstance(value, bool)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        finite = False
    if not finite:
        raise invalid(f"{name}={value!r:.80} must be a finite number")
