"""What tests of linear models train on."""

from pathlib import Path

import pytest
from linear_rows import text_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "rows.libsvm"
    path.write_text(text_of(2000))
    return path
