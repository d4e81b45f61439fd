"""The exceptions of deltawire.

All are `DeltawireError`s with the core's error code as a string; some are also the built-in
exception that a caller would expect (`ValueError`, `TypeError`).
"""

from collections.abc import Iterable, Mapping

from deltawire import _core


def printable(text: str, max_bytes: int = 1 << 20) -> str:
    """Text from outside as one line of printable Unicode, for an error."""
    return _core.printable_line(text.encode("utf-8", "replace"), max_bytes)


class DeltawireError(RuntimeError):
    """What went wrong, where, and what to do, in one line, even with names from outside.

    Attributes:
        code: the core's name of the error, e.g. "PeerLost", "Timeout", "Corrupt".
        suspect: the rank that caused it, or None if unknown.
        last_committed_step: if an exchange failed, the last committed step, the same on
            every surviving rank; None if there is none yet, and for other errors.
        epoch: of an elastic session, in which it happened; None for other errors.
    """

    epoch: int | None = None

    def __init__(
        self,
        message: str,
        code: str,
        suspect: int | None = None,
        last_committed_step: int | None = None,
    ) -> None:
        super().__init__(printable(message))
        self.code = code
        self.suspect = suspect
        self.last_committed_step = last_committed_step

    def __getattr__(self, name: str) -> object:
        if name == "standing_step":
            raise AttributeError("standing_step is called last_committed_step")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __reduce__(self):
        arguments = (str(self), self.code, self.suspect, self.last_committed_step)
        return type(self), arguments, {} if self.epoch is None else {"epoch": self.epoch}


class InvalidArgumentError(DeltawireError, ValueError):
    """An invalid spec, parameter or setting, or an unknown codec."""


class ExcludedError(DeltawireError):
    """The other members of an elastic session went on without this process, in `epoch`. It may join
    again. Code "Excluded"."""


class QuorumError(DeltawireError):
    """Too few members of an elastic session are left, or can be reached, to go on. Code
    "NoQuorum"."""


class DTypeError(DeltawireError, TypeError):
    """A dtype or device that deltawire doesn't support."""


# The core's advice about steps that are not finite names its own setting, which a caller may lack.
_LET_PASS = (
    "; mend the input, or let such steps pass (nonfinite)",
    ", or let such steps pass (nonfinite)",
)


def with_advice(error: DeltawireError, advice: str) -> DeltawireError:
    """The same error with the caller's advice instead of the core's at the end of its message."""
    text = str(error)
    for general in _LET_PASS:
        text = text.replace(general, "")
    told = type(error)(f"{text}; {advice}", error.code, error.suspect, error.last_committed_step)
    if error.epoch is not None:
        told.epoch = error.epoch
    return told


def check_state_given(state: object, keys: Iterable[str] = (), several: bool = False) -> None:
    """Raises InvalidArgumentError unless `state` is a mapping with these keys, or where it may be
    `several`, a list."""
    lists = several and isinstance(state, Iterable) and not isinstance(state, str | bytes)
    if not isinstance(state, Mapping) and not lists:
        raise make_error(
            "InvalidArgument",
            f"a state is what state_dict() or save() gave, not {type(state).__name__}",
        )
    missing = [key for key in keys if key not in state]
    if missing:
        raise make_error("InvalidArgument", f"the state lacks {', '.join(missing)}")


def in_epoch(error: DeltawireError, epoch: int) -> DeltawireError:
    """The same error with the epoch in its message and in `epoch`."""
    if error.epoch is not None:
        return error
    text = f"{error} (epoch {epoch})"
    told = type(error)(text, error.code, error.suspect, error.last_committed_step)
    told.epoch = epoch
    return told


class NoMemoryError(DeltawireError, MemoryError):
    """Memory for a step, a residual or a message could not be allocated (docs/design/memory.md)."""


_BY_CODE = {
    "InvalidArgument": InvalidArgumentError,
    "UnknownCodec": InvalidArgumentError,
    "UnsupportedDType": DTypeError,
    "NoMemory": NoMemoryError,
    "Excluded": ExcludedError,
    "NoQuorum": QuorumError,
}


def make_error(
    code: str, message: str, suspect: int | None = None, last_committed_step: int | None = None
) -> DeltawireError:
    """The exception for an error code (also called by the core)."""
    return _BY_CODE.get(code, DeltawireError)(message, code, suspect, last_committed_step)
