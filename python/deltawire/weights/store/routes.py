"""The way to a version that reads the fewest bytes: a snapshot or the reader's own version, and
patches after it."""

from collections.abc import Collection
from typing import NamedTuple

from deltawire.weights.store.manifest import Manifest, StoredFile


class Route(NamedTuple):
    """Files to be read in this order.

    Attributes:
        files: patches, after a snapshot unless the way begins at the reader's own weights.
        versions: the version that each file makes.
        bytes: of all files that are to be read.
    """

    files: tuple[StoredFile, ...]
    versions: tuple[int, ...]
    bytes: int


def shortest(
    manifest: Manifest,
    start: int | None,
    goal: int,
    without: Collection[str] = (),
    held: Collection[str] = (),
) -> Route | None:
    """The route with the fewest bytes to be read, and of equal ones that with the fewest files.

    Args:
        manifest: of the store.
        start: the version that the reader has, if any; one that the store doesn't know, or whose
            tied tensors are others, is of no use. Versions of the same weights are as good.
        goal: the version that it wants.
        without: names of files that can't be read.
        held: names of files that the reader has: they cost nothing.

    Returns:
        None if there is no way.
    """
    base, target = (None if each is None else manifest.find(each) for each in (start, goal))
    best: dict[int, Route] = {}
    if base is not None and target is not None:
        for each in manifest.versions:  # the goal itself is read, if only to be checked
            same = each.digest == base.digest and each.version != goal
            if (same or each is base) and each.tied == target.tied:
                best[each.version] = Route((), (), 0)
    for version in manifest.versions:  # ascending, so all bases come before
        number = version.version
        for file in version.files:
            before = Route((), (), 0) if file.base is None else best.get(file.base)
            if before is None or file.name in without:
                continue
            cost = 0 if file.name in held else file.bytes
            route = Route((*before.files, file), (*before.versions, number), before.bytes + cost)
            known = best.get(number)
            if known is None or _cost(route) < _cost(known):
                best[number] = route
        if number == goal:
            break
    return best.get(goal)


def _cost(route: Route) -> tuple[int, int]:
    return route.bytes, len(route.files)
