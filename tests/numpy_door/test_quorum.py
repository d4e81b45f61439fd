"""Which members of an elastic session may go on: never two groups of them."""

import itertools
import random

import pytest
from deltawire.elastic.views import Member, View, may_go_on, view_of, without_quarrels
from deltawire.errors import DeltawireError


def view(epoch: int, ids: tuple[int, ...]) -> View:
    return View(epoch, tuple(Member(each, "127.0.0.1", 1000 + each) for each in ids), 100)


def subsets(ids: tuple[int, ...]) -> list[frozenset[int]]:
    return [
        frozenset(each)
        for count in range(len(ids) + 1)
        for each in itertools.combinations(ids, count)
    ]


@pytest.mark.parametrize("world", range(1, 7))
def test_two_groups_of_a_view_never_both_go_on(world: int) -> None:
    before = view(3, tuple(range(world)))
    for left in subsets(tuple(range(world))):
        remaining = tuple(sorted(before.ids - left))
        for known in subsets(tuple(sorted(left))):  # not all have heard of all who left
            for one in subsets(remaining):
                others = before.ids - left - one
                goes_on = may_go_on(one, [before], left), may_go_on(others, [before], known)
                assert not (all(goes_on) and one and others), (one, others, left, known)
                if not left and 2 * len(one) != world:
                    assert any(goes_on), (one, others)
    assert may_go_on(before.ids, [before], frozenset())


def test_half_needs_the_lowest() -> None:
    before = view(0, (2, 5, 7, 9))
    assert may_go_on({2, 9}, [before], set())
    assert not may_go_on({5, 7}, [before], set())
    assert may_go_on({5, 7}, [before], {2})  # 2 of 3
    assert may_go_on({5, 9}, [before], {2, 7})
    larger = view(0, (2, 5, 7, 9, 11))
    assert may_go_on({5, 7}, [larger], {2}) and not may_go_on({7, 9}, [larger], {2})
    assert not may_go_on({9}, [before], {2, 7})
    assert not may_go_on({5, 7, 9}, [before, view(1, (2, 5))], set())


class World:
    """Processes that partitions group again and again. A group that may go on tries a view; an
    attempt may end before all know that it succeeded, or before a step."""

    def __init__(self, seed: int, count: int) -> None:
        self.draw = random.Random(seed)
        first = view(0, tuple(range(count)))
        self.base = dict.fromkeys(range(count), first)
        self.tried: dict[int, list[View]] = {each: [] for each in range(count)}
        self.committed = [first]  # all views that have committed a step, in order

    def turn(self) -> None:
        groups: dict[int, list[int]] = {}
        for each in self.base:
            groups.setdefault(self.draw.randrange(3), []).append(each)
        for group in groups.values():
            latest = max(self.base[each].epoch for each in group)
            there = [each for each in group if self.base[each].epoch == latest]
            views = [v for each in there for v in (self.base[each], *self.tried[each])]
            if not may_go_on(set(there), views, set()):
                continue
            new = view(max(v.epoch for v in views) + 1, tuple(there))
            outcome = self.draw.choice(("some try", "all try", "commit", "commit"))
            if outcome == "some try":
                there = self.draw.sample(there, self.draw.randrange(len(there) + 1))
            for each in there:
                self.tried[each].append(new)
            if outcome == "commit":
                assert latest == self.committed[-1].epoch, "two groups have gone on"
                self.committed.append(new)
                for each in there:
                    self.base[each], self.tried[each] = new, []


@pytest.mark.parametrize("count", range(2, 8))
def test_partitions_never_make_two_lines_of_views(count: int) -> None:
    views = 0
    for seed in range(300):
        world = World(seed, count)
        for _ in range(30):
            world.turn()
        views += len(world.committed) - 1
    assert views > 300


def test_of_two_that_cannot_connect_the_higher_goes() -> None:
    assert without_quarrels({0, 1, 2, 3}, [(3, 1), (1, 3)]) == {0, 1, 2}
    assert without_quarrels({0, 1, 2}, [(0, 2), (1, 2)]) == {0, 1}
    assert without_quarrels({0, 1}, [(0, 7)]) == {0, 1}


def test_a_view_survives_a_message() -> None:
    before = view(4, (0, 3))
    assert view_of(before.plain()) == before
    assert before.rank_of(3) == 1 and before.rank_of(1) is None


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        {},
        {"epoch": 1, "next_id": 2, "members": []},
        {"epoch": 1, "next_id": 2, "members": [[1, "h", 1], [0, "h", 1]]},
        {"epoch": 1, "next_id": 1, "members": [[0, "h", 1], [1, "h", 1]]},
        {"epoch": "x", "next_id": 2, "members": [[0, "h", 1]]},
        {"epoch": 1, "next_id": 2, "members": [[0, "h"]]},
        {"epoch": 1, "next_id": 2, "members": [[-1, "h", 1]]},
        {"epoch": 1, "next_id": 2, "members": [[float("inf"), "h", 1]]},
    ],
)
def test_what_is_no_view_is_refused(plain: object) -> None:
    with pytest.raises(DeltawireError) as caught:
        view_of(plain)
    assert caught.value.code == "Corrupt"
