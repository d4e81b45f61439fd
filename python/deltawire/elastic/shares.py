"""How members at a meeting bring their residuals together: the host collects a share of each, and
gives everybody those of all others, before it says who goes on. So nobody waits in a mesh for one
whose line is thin, and who dies meanwhile is in no view."""

import threading
from collections.abc import Callable, Mapping

from deltawire import _core, foreign_json
from deltawire.elastic.calls import SILENCE, hear_within, receive_bytes, say, send_bytes
from deltawire.elastic.reception import Visitor
from deltawire.errors import DeltawireError, make_error

Failures = dict[int, DeltawireError]  # by the id of the member that was lost


def collect(visitors: Mapping[int, Visitor]) -> tuple[dict[int, bytes], Failures]:
    """The shares of those members, by id."""
    shares = {}

    def ask(own_id: int, visitor: Visitor) -> None:
        say(visitor.line, {"say": "share"})
        shares[own_id] = receive_bytes(visitor.line, SILENCE)

    return shares, _at_once(visitors, ask)


def spread(
    epoch: int, shares: Mapping[int, bytes], visitors: Mapping[int, Visitor], seconds: float
) -> Failures:
    """Gives each the shares of the others, for a view of that epoch. seconds: for the last bytes
    that are under way, which nobody sees arrive."""

    def give(own_id: int, visitor: Visitor) -> None:
        others = {each: share for each, share in sorted(shares.items()) if each != own_id}
        say(visitor.line, {"say": "shares", "epoch": epoch, "ids": list(others)})
        for share in others.values():
            send_bytes(visitor.line, share, SILENCE)
        if hear_within(visitor.line, seconds)["say"] != "has shares":
            raise make_error("Corrupt", f"member {own_id} does not say that it has the residuals")

    return _at_once(visitors, give)


def receive_shares(line: _core.Line, message: dict) -> tuple[int, dict[int, bytes]]:
    """What `spread` gives, the epoch first; `message` is its first. Raises DeltawireError."""
    try:
        epoch = int(message["epoch"])
        ids = [int(each) for each in message["ids"]]
    except foreign_json.UNFIT as error:
        raise make_error("Corrupt", f"another rank gave no residuals: {error!r}") from None
    shares = {each: receive_bytes(line, SILENCE) for each in ids}
    say(line, {"say": "has shares"})
    return epoch, shares


# Their lines differ, so that one thin line holds up nobody else.
def _at_once(visitors: Mapping[int, Visitor], action: Callable[[int, Visitor], None]) -> Failures:
    failures = {}

    def run(own_id: int, visitor: Visitor) -> None:
        try:
            with visitor.busy():
                action(own_id, visitor)
        except DeltawireError as error:
            failures[own_id] = error

    threads = [
        threading.Thread(target=run, args=item, name="deltawire shares", daemon=True)
        for item in visitors.items()
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return failures
