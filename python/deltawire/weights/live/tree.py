"""The tree of readers: who reads from whom, so that nobody serves more than a few."""

import threading
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

_ROOT = None  # in the place of a reader's key
_MOST_LOST = 16  # parents that a reader is kept from


class ReaderState(NamedTuple):
    """A reader that is connected to the publisher.

    Attributes:
        host: where its connection comes from.
        serves: where it serves others, "host:port"; empty if it doesn't.
        parent: whom it reads from; empty for the publisher.
        version: the newest that it had fetched when it last said so; None if none.
    """

    host: str
    serves: str
    parent: str
    version: int | None


@dataclass
class _Member:
    host: str
    serves: str = ""
    version: int | None = None
    placed: bool = False
    parent: Hashable = _ROOT
    lost: set = field(default_factory=set)


class Tree:
    """Gives each reader a parent. Threads may share it."""

    def __init__(self, fanout: int) -> None:
        self._fanout = fanout
        self._lock = threading.Lock()
        self._members: dict[Hashable, _Member] = {}

    def place(self, key: Hashable, host: str, serves: str, version: int | None, lost: bool) -> str:
        """A reader's parent, "host:port", or empty for the root.

        Args:
            key: of the reader's connection.
            host: where that comes from.
            serves: where the reader serves others; empty if it doesn't.
            version: its newest.
            lost: its parent is no use to it.
        """
        with self._lock:
            member = self._members.setdefault(key, _Member(host))
            member.serves, member.version = serves, version
            if lost and member.parent is not _ROOT:
                if len(member.lost) >= _MOST_LOST:
                    member.lost.clear()
                member.lost.add(member.parent)
            if not self._may_stay(member):
                member.parent = self._choose(key, member)
                member.placed = True
            return self._address(member.parent)

    def leave(self, key: Hashable) -> None:
        """A reader's connection has ended; those below it will ask for another parent."""
        with self._lock:
            self._members.pop(key, None)

    def readers(self) -> list[ReaderState]:
        """All who are connected."""
        with self._lock:
            return [
                ReaderState(each.host, each.serves, self._address(each.parent), each.version)
                for each in self._members.values()
            ]

    def _address(self, key: Hashable) -> str:
        parent = None if key is _ROOT else self._members.get(key)
        return "" if parent is None else parent.serves

    def _may_stay(self, member: _Member) -> bool:
        if not member.placed or member.parent in member.lost:
            return False
        if member.parent is not _ROOT:
            parent = self._members.get(member.parent)
            if parent is None or not parent.serves:
                return False
        return self._children(member.parent) <= self._fanout

    def _choose(self, key: Hashable, member: _Member) -> Hashable:
        """The root while it has room, then the reader nearest to it; if none has, the root."""
        member.parent, member.placed = _ROOT, False
        children = Counter(each.parent for each in self._members.values() if each.placed)
        if children[_ROOT] < self._fanout:
            return _ROOT
        found = [
            (len(ancestors), children[other], number, other)
            for number, (other, each) in enumerate(self._members.items())
            if each.serves and each.placed and other != key and other not in member.lost
            if children[other] < self._fanout
            for ancestors in [self._ancestors(other)]
            if key not in ancestors
        ]
        return min(found, key=lambda each: each[:3])[3] if found else _ROOT

    def _children(self, key: Hashable) -> int:
        return sum(each.placed and each.parent == key for each in self._members.values())

    def _ancestors(self, key: Hashable) -> list[Hashable]:
        """From the parent up, without the root."""
        found: list[Hashable] = []
        while (member := self._members.get(key)) is not None and member.parent is not _ROOT:
            key = member.parent
            if key in found:
                break
            found.append(key)
        return found
