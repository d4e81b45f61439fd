"""Readers that serve each other: who reads from whom, what the publisher sends, who takes over."""

import contextlib
import random
import shutil
from collections.abc import Iterator

import pytest
from deltawire import live
from deltawire.weights.live import following
from deltawire.weights.live.board import Board
from deltawire.weights.live.tree import Tree

from tests.live.live_pairs import (
    ANYWHERE,
    TOKEN,
    arrive,
    publish,
    publisher_of,
    same,
    subscriber_of,
    train,
    wait_until,
    weights,
)

READERS = 7


def check(tree: Tree, fanout: int) -> None:
    """Everybody who serves may be reached from the root, and nobody serves too many."""
    members = tree._members
    for key, member in members.items():
        steps, at = 0, key
        while at is not None and at in members:
            at = members[at].parent
            steps += 1
            assert steps <= len(members), "a circle"
        parent = members.get(member.parent)
        if member.placed and parent is not None:
            assert parent.serves and member.parent != key
    for key, member in members.items():
        assert tree._children(key) <= (fanout if member.serves else 0)


def test_trees_of_all_kinds() -> None:
    """Random joins, losses and ends: no circles, no more children than allowed."""
    draw = random.Random(5)
    for fanout in (1, 2, 3):
        tree = Tree(fanout)
        present: list[int] = []
        for number in range(1500):
            what = draw.random()
            if what < 0.3 or not present:
                present.append(number)
                tree.place(
                    number, "host", f"host:{number}" if draw.random() < 0.7 else "", 0, False
                )
            elif what < 0.5 and len(present) > 5:
                gone = present.pop(draw.randrange(len(present)))
                tree.leave(gone)
            else:
                key = draw.choice(present)
                serves = tree._members[key].serves
                tree.place(key, "host", serves, number, draw.random() < 0.3)
            if number % 10 == 0:
                for key in present:  # everybody reports, and who has lost a parent gets another
                    tree.place(key, "host", tree._members[key].serves, number, False)
                check(tree, fanout)
        assert len(tree.readers()) == len(present) > 10


def test_readers_that_serve_nobody_make_room() -> None:
    """Those who came first move below the first that serves."""
    tree = Tree(1)
    assert tree.place("leaf", "host", "", 0, False) == ""
    assert tree.place("serving", "host", "host:1", 0, False) == ""  # nobody else has room
    assert tree.place("leaf", "host", "", 0, False) == "host:1"
    assert tree.place("serving", "host", "host:1", 0, False) == ""
    assert tree.place("third", "host", "", 0, False) == "", "no room anywhere"


def several(publisher: live.Publisher, stack: contextlib.ExitStack) -> list[live.Subscriber]:
    """Subscribers with the publisher's weights, that serve each other."""
    readers = []
    for number in range(READERS):
        model = {name: each.copy() for name, each in publisher._model.items()}
        readers.append(subscriber_of(model, publisher, serve=ANYWHERE))
        stack.enter_context(readers[-1])
        wait_until(lambda n=number: len(publisher.readers()) == n + 1, "it is connected")
    return readers


@contextlib.contextmanager
def a_chain(count: int) -> Iterator[tuple[live.Publisher, list[live.Subscriber]]]:
    """A publisher and so many readers, each of which reads from the one before."""
    with publisher_of(weights(), fanout=1) as publisher, contextlib.ExitStack() as stack:
        publish(publisher)
        readers = several(publisher, stack)[:count]
        follow(publisher, readers, 2)
        assert [each.parent for each in readers[:2]] == [publisher.address, readers[0].address]
        yield publisher, readers


def follow(publisher: live.Publisher, readers: list[live.Subscriber], versions: int) -> None:
    """Publishes, and updates everybody."""
    for number in range(versions):
        train(publisher._model, number)
        version = publish(publisher)
        for reader in readers:
            assert reader.wait(version, 30) == version
            assert reader.update() == version
            assert same(reader.model, publisher._model)


def test_the_publisher_sends_to_its_own_children_alone() -> None:
    """With a fanout of 2 it sends two readers' bytes, however many there are."""
    with publisher_of(weights(), fanout=2) as publisher, contextlib.ExitStack() as stack:
        publish(publisher)
        readers = several(publisher, stack)
        follow(publisher, readers, 6)
        parents = [reader.parent for reader in readers]
        assert parents.count(publisher.address) == 2
        assert all(parents.count(reader.address) <= 2 for reader in readers)
        states = publisher.readers()
        assert sorted(each.serves for each in states) == sorted(each.address for each in readers)
        received = [reader.bytes_received for reader in readers]
        assert publisher.bytes_sent < 2.5 * max(received) < sum(received) / 2
        wait_until(
            lambda: sum(reader.bytes_sent for reader in readers) > 4 * min(received),
            "the readers have sent the rest",
        )


def test_a_parent_dies() -> None:
    """Those below it get another one, and miss nothing."""
    with a_chain(READERS) as (publisher, readers):
        readers[0].close()
        readers[3].close()
        left = [reader for number, reader in enumerate(readers) if number not in (0, 3)]
        follow(publisher, left, 3)
        gone = {readers[0].address, readers[3].address}
        wait_until(lambda: not gone & {each.parent for each in left}, "they have other parents")
        assert any(reader.parent == publisher.address for reader in left)


def test_a_parent_that_is_reached_by_the_publisher_alone() -> None:
    """The publisher believes those who can't read from it."""
    with a_chain(2) as (publisher, readers):
        readers[0]._server.close()
        follow(publisher, readers, 2)
        assert readers[1].parent != readers[0].address


def test_a_parent_lags(monkeypatch) -> None:
    """It answers, but has nothing new: its children go elsewhere."""
    monkeypatch.setattr(following, "LAG_SECONDS", 0.6)
    with a_chain(2) as (publisher, readers):
        monkeypatch.setattr(readers[0]._board, "announce", lambda *_: None)
        follow(publisher, readers, 2)
        assert readers[1].parent != readers[0].address


def test_what_a_parent_lacks_comes_from_the_publisher() -> None:
    """Parents that never needed a snapshot have none for a late joiner, who reads patches from
    them afterwards."""
    model = weights()
    with publisher_of(model, fanout=1) as publisher:
        publish(publisher)
        first = {name: each.copy() for name, each in model.items()}
        with subscriber_of(first, publisher, serve=ANYWHERE) as parent:
            parent.wait(0, 20)
            with subscriber_of(weights(2), publisher) as late:
                assert late.wait(0, 20) == late.update() == 0
                follow(publisher, [parent, late], 3)
                assert late.parent == parent.address
                assert parent.bytes_received < model["first"].nbytes
                assert parent.bytes_sent > 0


def test_a_parent_with_a_damaged_file() -> None:
    """It is found by its checksum, and the publisher gives the right one."""
    with a_chain(2) as (publisher, readers):
        parent, child = readers
        board: Board = parent._board
        real = board.data

        def damaged(name: str):
            data = real(name)
            if data is not None:
                data = data.copy()
                data[len(data) // 2] ^= 1
            return data

        board.data = damaged
        with pytest.warns(RuntimeWarning, match="its checksum is wrong"):
            follow(publisher, readers, 2)
        assert child.parent == parent.address


def test_a_full_cache_is_no_fault_of_the_parent(monkeypatch, tmp_path) -> None:
    """Whoever has no room stays where it is, and asks the publisher for nothing."""
    model = weights()
    with (
        publisher_of(model, fanout=1) as publisher,
        subscriber_of(weights(3), publisher, serve=ANYWHERE) as parent,
    ):
        arrive(publisher, parent)
        wait_until(lambda: publisher.bytes_sent >= parent.bytes_received, "all of it is counted")
        sent = publisher.bytes_sent
        room = shutil.disk_usage(tmp_path)._replace(free=10_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _folder: room)
        with subscriber_of(weights(2), publisher, cache=tmp_path) as full:
            for _ in range(2):
                wait_until(lambda: full.problem is not None, "it has noticed")
                assert full.problem.code == "Io" and full.parent == parent.address
                full._following._set_problem(None)
            assert publisher.bytes_sent - sent < model["first"].nbytes / 2


def test_subscribers_of_a_subscriber() -> None:
    """One that serves can be the address of another: a tree by hand."""
    model, served = weights(), weights(2)
    with (
        publisher_of(model) as publisher,
        subscriber_of(weights(3), publisher, serve="0.0.0.0:0") as middle,
    ):
        publish(publisher)
        assert middle.address.startswith("0.0.0.0:")
        wait_until(lambda: publisher.readers(), "it is connected")
        port = middle.address.rsplit(":", 1)[1]
        assert publisher.readers()[0].serves == f"127.0.0.1:{port}"
        with live.Subscriber(served, f"127.0.0.1:{port}", token=TOKEN) as last:
            assert last.wait(0, 20) == last.update() == 0
            assert same(served, model)
