"""What a build lacks is named, all at once; so is the extra that `deltawire.torch` lacks."""

import re
import subprocess
import sys

from package_build import ROOT, TIMEOUT


def test_all_missing_libraries_are_named_with_their_packages(tmp_path):
    gone = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("ZLIB", "CLI11", "OpenSSL")]
    done = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", "-DDELTAWIRE_TESTS=OFF", *gone],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode != 0
    words = " ".join(done.stderr.split())
    for missing in (
        "zlib (Debian: zlib1g-dev)",
        "CLI11 (Debian: libcli11-dev)",
        "OpenSSL 3 (Debian: libssl-dev)",
    ):
        assert missing in words, done.stderr
    assert "zstd" not in words
    assert "-DDELTAWIRE_CLI=OFF" in words


def least_of(extra: str) -> str:
    """What pyproject.toml asks for, without the upper limit: "torch>=2.6"."""
    text = (ROOT / "pyproject.toml").read_text()
    return re.search(rf'^{extra} = \["([^,"]*)', text, re.MULTILINE)[1]


def test_without_pytorch_its_module_names_the_package():
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['torch'] = None; import deltawire.torch"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: "), done.stderr
    assert f"pip install '{least_of('torch')}'" in last
