"""deltawire.flower where Flower isn't installed."""

import subprocess
import sys


def test_the_error_names_the_extra():
    program = "import sys; sys.modules['flwr'] = None; import deltawire.flower"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 1
    assert "pip install 'flwr>=1.41'" in said.stderr  # pyproject.toml's, where Flower isn't


def test_rounds_need_neither_torch_nor_flower():
    program = (
        "import sys; sys.modules['flwr'] = sys.modules['torch'] = None; import deltawire.rounds"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
