"""The drawing of a folder's imports and includes: rooms, floors, arrows and circles."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "draw_imports.py"
sys.path.insert(0, str(SCRIPT.parent))
import draw_imports  # noqa: E402


def plant(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """`top` uses the sub-package `wing`, which uses `ground`."""
    plant(tmp_path, "house/__init__.py", "from house.top import roof\n")
    plant(tmp_path, "house/top.py", "from house import wing\nimport os\n")
    plant(tmp_path, "house/wing/__init__.py")
    plant(tmp_path, "house/wing/room.py", "from house.wing import hall\nfrom ..ground import x\n")
    plant(tmp_path, "house/wing/hall.py", "import house.ground\n")
    plant(tmp_path, "house/ground.py", "import json\n")
    plant(tmp_path, "house/test_top.py", "import house.top\n")
    return tmp_path / "house"


def test_python_rooms_stand_above_what_they_import(package: Path) -> None:
    drawing = draw_imports.draw(package, package.parent)
    assert drawing.arrows == {
        "__init__": {"top"},
        "top": {"wing/"},
        "wing/": {"ground"},
        "ground": set(),
    }
    assert drawing.floors == {"__init__": 4, "top": 3, "wing/": 2, "ground": 1}
    assert drawing.circles == []
    first, *_ = drawing.text("house").splitlines()
    assert first == "house: 4 rooms, 4 floors, 3 arrows, 0 circles; 6 files, 7 lines"


def test_a_circle_is_found_and_shares_a_floor(package: Path) -> None:
    plant(package, "ground.py", "def late():\n    from house.top import roof\n")
    drawing = draw_imports.draw(package, package.parent)
    assert drawing.circles == [["ground", "top", "wing/"]]
    assert drawing.floors == {"__init__": 2, "ground": 1, "top": 1, "wing/": 1}
    assert "circle: ground <-> top <-> wing/" in drawing.text("house")


def test_tests_are_drawn_where_they_are_asked_for(package: Path) -> None:
    assert "test_top" in draw_imports.draw(package, package.parent, with_tests=True).arrows


def test_cpp_rooms_are_folders_and_stems(tmp_path: Path) -> None:
    plant(tmp_path, "src/base/bits.h", "#include <vector>\n")
    plant(tmp_path, "src/wire/frame.h", '#include "base/bits.h"\n')
    plant(tmp_path, "src/wire/frame.cc", '#include "wire/frame.h"\n#include "table.h"\n')
    plant(tmp_path, "src/wire/table.h")
    assert draw_imports.draw(tmp_path / "src", tmp_path).arrows == {
        "base/": set(),
        "wire/": {"base/"},
    }
    assert draw_imports.draw(tmp_path / "src/wire", tmp_path).arrows == {
        "frame": {"table"},
        "table": set(),
    }


def test_a_public_header_is_its_layers() -> None:
    arrows = draw_imports.draw(ROOT / "src", ROOT).arrows
    assert "codecs/" in arrows["reduce/"]
    assert arrows["base/"] == set()


def test_it_says_how_it_is_called_and_fails_for_a_circle(package: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, SCRIPT, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert "FOLDER" in run("--help").stdout.upper()
    assert run(str(package)).returncode == 0
    assert run(str(package / "nowhere")).returncode == 2
    plant(package, "ground.py", "import house.top\n")
    assert run(str(package)).returncode == 1


def test_torchs_wings_stand_side_by_side() -> None:
    drawing = draw_imports.draw(ROOT / "python/deltawire/torch", ROOT)
    assert drawing.circles == []
    wings = {"ddp/", "fsdp/", "local/", "server/"}
    for wing in wings:
        assert drawing.arrows[wing] <= {"participant", "metrics/", "core/"}
    assert drawing.arrows["auto/"] <= {"ddp/", "participant", "metrics/", "core/"}
    assert drawing.arrows["core/"] == {"gpu/"}
    assert drawing.arrows["gpu/"] == set()
