"""scripts/make_venv.sh leaves alone what is not its own."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_an_environment_behind_a_link_is_not_emptied(tmp_path: Path) -> None:
    checkout, other = tmp_path / "checkout", tmp_path / "other"
    (checkout / "scripts").mkdir(parents=True)
    other.mkdir()
    (other / "kept").write_text("")
    (checkout / ".venv").symlink_to(other)
    (checkout / "requirements-dev.txt").write_text("no-such-package==0\n")
    script = shutil.copy(ROOT / "scripts" / "make_venv.sh", checkout / "scripts")
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f".venv is a link to {other}" in done.stderr
    assert (other / "kept").exists()
