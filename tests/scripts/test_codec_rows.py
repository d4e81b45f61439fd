"""A codec's folder and its C++ agree: the registry's row, and the targets of its kernels."""

import re
from pathlib import Path

CODECS = Path(__file__).resolve().parents[2] / "src" / "codecs"
CMAKE = CODECS / "CMakeLists.txt"
TARGETS = ("ref", "avx2", "avx512", "avx512vbmi", "neon")


def test_every_folder_with_a_specification_has_a_row() -> None:
    rows = re.findall(r"^  ROW\((\w+)\)", (CODECS / "registry.cc").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(spec.parent.name for spec in CODECS.rglob("spec.md"))


def compiled_again() -> list[str]:
    """Give the folders whose files for AVX-512 CMake compiles again with VBMI."""
    listed = re.search(r"^set\(again_for_avx512vbmi ([^)]+)\)", CMAKE.read_text(), re.MULTILINE)
    assert listed
    return listed[1].split()


def test_what_is_compiled_again_with_vbmi_asks_for_it() -> None:
    asking = {
        path.parent.name
        for path in CODECS.rglob("*_avx512.*")
        if "__AVX512VBMI" in path.read_text()
    }
    assert sorted(asking) == sorted(compiled_again())


def test_targets_are_those_that_have_files() -> None:
    for folder in {path.parent for path in CODECS.rglob("*_ref.cc")}:
        names = {path.stem.rpartition("_")[2] for path in folder.glob("*_*.cc")}
        if folder.name in compiled_again():
            names.add("avx512vbmi")
        files = ["reference" if name == "ref" else name for name in TARGETS if name in names]
        text = "".join(path.read_text() for path in sorted(folder.glob("*.cc")))
        (named,) = re.findall(r"^DELTAWIRE_KERNELS\((.*)\)$", text, re.MULTILINE)
        assert named.split(", ") == files, folder.name
