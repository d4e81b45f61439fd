"""The way with the fewest bytes."""

from dataclasses import replace

import pytest
from deltawire.weights.store import routes
from deltawire.weights.store.manifest import Manifest, StoredFile, Version


def manifest(files: dict[tuple[int | None, int], int]) -> Manifest:
    """Versions 1 to 5; bytes of the file that leads from one version to another."""
    return Manifest(
        versions=tuple(
            Version(
                number,
                f"{number:016}",
                tuple(
                    StoredFile(f"{base}-{to}", size, "0" * 64, base)
                    for (base, to), size in files.items()
                    if to == number
                ),
            )
            for number in range(1, 6)
        )
    )


CHAIN = {(None, 1): 100, (1, 2): 10, (2, 3): 10, (3, 4): 10, (4, 5): 10}


@pytest.mark.parametrize(
    ("more", "start", "goal", "without", "names", "size"),
    [
        ({}, 1, 5, (), "1-2 2-3 3-4 4-5", 40),
        ({}, None, 3, (), "None-1 1-2 2-3", 120),
        ({(1, 4): 31}, 1, 5, (), "1-2 2-3 3-4 4-5", 40),
        ({(1, 4): 29}, 1, 5, (), "1-4 4-5", 39),
        ({(1, 4): 30}, 1, 5, (), "1-4 4-5", 40),
        ({(1, 4): 30}, 2, 5, (), "2-3 3-4 4-5", 30),
        ({(None, 4): 19}, 2, 5, (), "None-4 4-5", 29),
        ({(None, 4): 21}, 2, 5, (), "2-3 3-4 4-5", 30),
        ({(1, 4): 29}, 1, 5, ("1-4",), "1-2 2-3 3-4 4-5", 40),
        ({}, 4, 2, (), "None-1 1-2", 110),
        ({}, 9, 1, (), "None-1", 100),
        ({}, 5, 5, (), "", 0),
    ],
)
def test_the_shortest_way(more, start, goal, without, names: str, size: int) -> None:
    route = routes.shortest(manifest(CHAIN | more), start, goal, without)
    assert [file.name for file in route.files] == names.split()
    assert route.bytes == size and route.versions[-1:] == ((goal,) if names else ())


def test_no_way() -> None:
    assert routes.shortest(manifest(CHAIN), 1, 5, ("3-4",)) is None
    assert routes.shortest(manifest(CHAIN), 1, 6) is None


def test_files_that_the_reader_has_cost_nothing() -> None:
    """They make a way of many files the shortest; only what is missing counts."""
    store = manifest(CHAIN | {(1, 4): 15})
    route = routes.shortest(store, 1, 4, held={"1-2", "2-3"})
    assert [file.name for file in route.files] == ["1-2", "2-3", "3-4"] and route.bytes == 10
    assert routes.shortest(store, 1, 4).bytes == 15


def test_where_tied_tensors_are_others_a_snapshot_is_needed() -> None:
    store = manifest(CHAIN)
    tied = Version(5, f"{5:016}", store.versions[4].files, {"head": "embedding"})
    store = Manifest(versions=(*store.versions[:4], tied))
    assert routes.shortest(store, 1, 4).bytes == 30
    assert routes.shortest(store, 1, 5).files[0].base is None


def test_of_versions_with_the_same_weights_the_nearest_counts() -> None:
    """Also where another one is the reader's; but no way is empty that leads to another version."""
    store = manifest(CHAIN)
    same = [replace(each, digest=store.versions[0].digest) for each in store.versions[:4]]
    store = Manifest(versions=(*same, store.versions[4]))
    for start in (1, 2, 3, 4):
        assert [file.name for file in routes.shortest(store, start, 5).files] == ["4-5"]
    assert [file.name for file in routes.shortest(store, 1, 4).files] == ["3-4"]
