"""What lab tests share: the repository on the path, a tiny image set, namespaces."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.ranks import launcher  # noqa: E402

launcher.PRELOADED = []  # the fork server of all tests imports more (tests/conftest.py)


@pytest.fixture
def namespaces() -> None:
    """Skips, with the reason, if this machine does not let us make network namespaces."""
    from hosts import hosts

    with hosts(rate=12.5e6):
        pass


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """A small image set in idx files, some gzipped."""
    from planted_images import write_image_set

    folder = tmp_path / "data"
    folder.mkdir()
    return write_image_set(folder)
