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
        suspect: the rank that caused it, or None if unknown. Of a sharded model (FSDP2) this and
            the ranks below are global.
        last_committed_step: if an exchange failed, the last committed step, the same on
            every surviving rank; None if there is none yet, and for other errors.
        reporter: the rank that found it, or passed it on; None if this one has, or if unknown.
        waits_for: the rank whose message or vote the reporter waited for in vain, or None.
        ranks: those that it is about, a tuple: whose means differ, who are not connected, who wait
            for each other.
        tensor: the name of the tensor that it is about, or None.
        message: the line without the advice.
        advice: what to do, the end of the line; None where the message has it, or none is known.
        epoch: of an elastic session, in which it happened; None for other errors.
    """

    epoch: int | None = None

    def __init__(
        self,
        message: str,
        code: str,
        suspect: int | None = None,
        last_committed_step: int | None = None,
        *,
        reporter: int | None = None,
        waits_for: int | None = None,
        ranks: Iterable[int] = (),
        tensor: str | None = None,
        advice: str | None = None,
    ) -> None:
        self.message = printable(message)
        self.advice = None if advice is None else printable(advice)
        super().__init__(f"{self.message}; {self.advice}" if self.advice else self.message)
        self.code = code
        self.suspect = suspect
        self.last_committed_step = last_committed_step
        self.reporter = reporter
        self.waits_for = waits_for
        self.ranks = tuple(ranks)
        self.tensor = tensor

    def __getattr__(self, name: str) -> object:
        if name == "standing_step":
            raise AttributeError("standing_step is called last_committed_step")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __reduce__(self):
        return _made, (type(self), *self._parts())

    def _parts(self) -> tuple[tuple, dict, int | None]:
        first = self.message, self.code, self.suspect, self.last_committed_step
        names = "reporter", "waits_for", "ranks", "tensor", "advice"
        return first, {name: getattr(self, name) for name in names}, self.epoch


def _made(kind: type[DeltawireError], first: tuple, fields: dict, epoch: int | None):
    error = kind(*first, **fields)
    if epoch is not None:
        error.epoch = epoch
    return error


def changed(error: DeltawireError, *, epoch: int | None = None, **fields) -> DeltawireError:
    """The same error with other fields: those of `DeltawireError`'s constructor, or `epoch`."""
    (message, *first), others, before = error._parts()
    message = fields.pop("message", message)
    return _made(
        type(error), (message, *first), others | fields, before if epoch is None else epoch
    )


def with_advice(error: DeltawireError, advice: str) -> DeltawireError:
    """The same error with more advice."""
    return changed(error, advice=f"{error.advice}; {advice}" if error.advice else advice)


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


def check_state_given(state: object, keys: Iterable[str] = (), several: bool = False) -> None:
    """Raises InvalidArgumentError unless `state` is a mapping with these keys, or where it may be
    `several`, a list."""
    lists = several and isinstance(state, Iterable) and not isinstance(state, str | bytes)
    if not isinstance(state, Mapping) and not lists:
        raise invalid(f"a state is what state_dict() or save() gave, not {type(state).__name__}")
    missing = [key for key in keys if key not in state]
    if missing:
        raise invalid(f"the state lacks {', '.join(missing)}")


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
    code: str,
    message: str,
    suspect: int | None = None,
    last_committed_step: int | None = None,
    **fields,
) -> DeltawireError:
    """The exception for an error code (also called by the core). fields: of `DeltawireError`."""
    kind = _BY_CODE.get(code, DeltawireError)
    return kind(message, code, suspect, last_committed_step, **fields)


def invalid(message: str) -> DeltawireError:
    """For a spec, an argument or a setting that is wrong: an InvalidArgumentError."""
    return make_error("InvalidArgument", message)


def wrong_type(message: str) -> DeltawireError:
    """For an argument of another type than the call takes: DTypeError, code "InvalidArgument"."""
    return DTypeError(message, "InvalidArgument")


def wrong_dtype(message: str) -> DeltawireError:
    """For an array or a tensor of another kind than the call takes: a DTypeError."""
    return make_error("UnsupportedDType", message)


def wrong_state(message: str) -> DeltawireError:
    """For a call that does not go with those before it: code "State"."""
    return make_error("State", message)


def mismatch(message: str) -> DeltawireError:
    """For what does not go with what others have: code "Mismatch"."""
    return make_error("Mismatch", message)


def corrupt(message: str) -> DeltawireError:
    """For damaged bytes: code "Corrupt"."""
    return make_error("Corrupt", message)
