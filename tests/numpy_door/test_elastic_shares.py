"""How members at a meeting bring their residuals together."""

import queue
import threading

import pytest
from deltawire.elastic.agreement import Agreement, agreement_of
from deltawire.elastic.calls import hear_within, say, send_bytes
from deltawire.elastic.reception import Visitor
from deltawire.elastic.shares import collect, receive_shares, spread
from deltawire.elastic.views import Member, View
from deltawire.errors import DeltawireError, make_error

LIMIT = 60.0  # seconds
EPOCH = 5
SHARES = {0: b"of the host", 1: bytes(100_000), 2: b""}


class End:
    """One end of a line between two threads."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[bytes | None] = queue.Queue()
        self.far = self

    def send(self, message: bytes, timeout_ms: int) -> None:
        del timeout_ms
        self.far.inbox.put(message)

    def receive(self, bytes_max: int, timeout_ms: int) -> bytes | None:
        try:
            message = self.inbox.get(timeout=1e-3 * timeout_ms)
        except queue.Empty:
            return None
        if message is None:
            raise make_error("PeerLost", "it has hung up")
        assert len(message) <= bytes_max
        return message

    def keep(self, text: str | None) -> None:
        assert text is None, "nobody waits here"


def line() -> tuple[End, End]:
    ends = End(), End()
    ends[0].far, ends[1].far = ends[1], ends[0]
    return ends


def attend(end: End, own_id: int, got: dict[int, object]) -> None:
    """What a member does at a host."""
    hear_within(end, LIMIT)  # "share"
    send_bytes(end, SHARES[own_id], LIMIT)
    got[own_id] = receive_shares(end, hear_within(end, LIMIT))
    assert got[own_id][0] == EPOCH


def test_everybody_gets_what_the_others_owe() -> None:
    lines = {each: line() for each in (1, 2)}
    got: dict[int, object] = {}
    members = [
        threading.Thread(target=attend, args=(lines[each][1], each, got), daemon=True)
        for each in (1, 2)
    ]
    for each in members:
        each.start()
    visitors = {each: Visitor(near, {}) for each, (near, _) in lines.items()}
    shares, lost = collect(visitors)
    assert shares == {1: SHARES[1], 2: SHARES[2]} and not lost
    assert not spread(EPOCH, {0: SHARES[0], **shares}, visitors, LIMIT)
    for each in members:
        each.join(LIMIT)
    for each in (1, 2):
        assert got[each] == (EPOCH, {k: share for k, share in SHARES.items() if k != each})


def test_whoever_hangs_up_has_no_share_and_holds_up_nobody() -> None:
    (near, far), (dead, _) = line(), line()
    dead.inbox.put(None)
    visitors = {1: Visitor(near, {}), 2: Visitor(dead, {})}
    got: dict[int, object] = {}
    member = threading.Thread(target=attend, args=(far, 1, got), daemon=True)
    member.start()
    shares, lost = collect(visitors)
    assert shares == {1: SHARES[1]} and lost.keys() == {2}
    dead.inbox.put(None)
    assert spread(EPOCH, {0: b"", **shares}, visitors, LIMIT).keys() == {2}
    member.join(LIMIT)
    assert got == {1: (EPOCH, {0: b""})}


def test_whoever_says_something_else_is_lost() -> None:
    near, far = line()
    say(far, {"say": "ready"})
    assert spread(EPOCH, {}, {1: Visitor(near, {})}, LIMIT)[1].code == "Corrupt"


def agreement(shares: dict[int, bytes] | None) -> dict:
    view = View(1, (Member(0, "host", 1), Member(1, "host", 2)), 2)
    return Agreement("job", view, view, ("host", 3), 7, {}, [], [], shares).plain()


def test_an_agreement_goes_with_the_shares_that_came_before_it() -> None:
    head = agreement({0: b"a", 1: b"b"})
    assert agreement_of(head, {0: b"a"}, 1).shares == {0: b"a"}
    assert agreement_of(head, {0: b"a", 1: b"b"}, None).shares == {0: b"a", 1: b"b"}
    assert agreement_of(agreement(None), {}, 1).shares is None
    for held in ({}, {1: b"b"}, {0: b"a", 2: b"c"}):
        with pytest.raises(DeltawireError) as caught:
            agreement_of(head, held, 1)
        assert caught.value.code == "Corrupt"
    for changed in ({"steps": float("inf")}, {"id": "x"}, {"residuals": [1.0]}):
        with pytest.raises(DeltawireError) as caught:
            agreement_of(head | changed, {0: b"a"}, 1)
        assert caught.value.code == "Corrupt"


def test_shares_without_ids_are_refused() -> None:
    near, _ = line()
    with pytest.raises(DeltawireError) as caught:
        receive_shares(near, {"say": "shares", "epoch": EPOCH, "ids": ["x"]})
    assert caught.value.code == "Corrupt"
