"""What the lab's tests share: the repository on the path, a time limit, and a tiny image set."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def pytest_collection_modifyitems(items):
    """What can't fail can't hang either."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """A small image set in idx files, some gzipped."""
    from planted_images import write_image_set

    folder = tmp_path / "data"
    folder.mkdir()
    return write_image_set(folder)
