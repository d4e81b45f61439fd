"""The check of the C interface's ABI finds changes that break programs, and allows additions."""

import shutil
import sys
from pathlib import Path

import package_build as build
import pytest

sys.path.insert(0, str(build.ROOT / "scripts"))
import check_abi  # noqa: E402

needs_libabigail = pytest.mark.skipif(
    shutil.which("abidiff") is None,
    reason="abigail-tools is not installed (make check installs it)",
)


def compared(folder: Path, old: str, new: str) -> int:
    """Runs the check on the header with `old` replaced by `new`."""
    shutil.copytree(build.ROOT / "include", folder / "include")
    header = folder / "include" / "deltawire" / "deltawire.h"
    text = header.read_text()
    assert text.count(old) >= 1
    header.write_text(text.replace(old, new))
    return check_abi.compare(folder / "include", check_abi.BASELINE)


@needs_libabigail
def test_the_header_is_as_it_was_released():
    assert check_abi.compare(build.ROOT / "include", check_abi.BASELINE) == 0


@needs_libabigail
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("uint32_t epoch;", "uint64_t epoch;"),
        ("int64_t timeout_ms", "int32_t timeout_ms"),
        ("deltawire_codec_bounds(", "deltawire_codec_limits("),
    ],
)
def test_what_breaks_programs_is_seen(tmp_path, old, new):
    assert compared(tmp_path, old, new) == 1


@needs_libabigail
def test_a_new_function_passes(tmp_path):
    mark = "/* ---- errors ---- */"
    assert compared(tmp_path, mark, f"DELTAWIRE_API void deltawire_more(int a);\n{mark}") == 0


def test_every_function_of_the_header_is_compared():
    header = (build.ROOT / "include" / "deltawire" / "deltawire.h").read_text()
    names = {name for _, name, _ in check_abi.DECLARATION.findall(header)}
    assert len(names) == header.count("\nDELTAWIRE_API ")
