"""As a part of another project (docs/start/installing.md) deltawire is its library, and leaves that
project as it is.

To compile the whole library again would take minutes for each way: the outer project's own
commands are run, and the library that they link is the one that is built already.
DELTAWIRE_WHOLE_PACKAGE=1
(`make check`) compiles all.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import package_build as build
import pytest

pytestmark = pytest.mark.timeout(300)  # compilers on a busy machine

COMMANDS_MAX = 180  # of all that the outer project runs


@pytest.fixture(params=["subdirectory", pytest.param("fetch", marks=pytest.mark.thorough)])
def outer(request, tmp_path) -> Path:
    """The outer project, configured with flags of its own and no build type."""
    build.run(
        *("cmake", "-S", build.ROOT / "tests" / "package" / "outer", "-B", tmp_path, "-GNinja"),
        *(f"-DWAY={request.param}", f"-DDELTAWIRE_SOURCE={build.ROOT}"),
        "-DCMAKE_CXX_FLAGS=-O1 -ffast-math",
    )
    return tmp_path


def commands(folder: Path, *targets: str) -> list[str]:
    return build.run("ninja", "-C", folder, "--quiet", "-t", "commands", *targets).splitlines()


def test_it_is_the_library_alone(outer):
    check_commands(commands(outer, "all"))
    cache = (outer / "CMakeCache.txt").read_text()
    assert re.search(r"^CMAKE_BUILD_TYPE:\w+=$", cache, re.MULTILINE)
    assert "DELTAWIRE_TESTS:BOOL=OFF" in cache and "GTest" not in cache
    build_the_program(outer)
    build.train_two_ranks(outer / "train")


def check_commands(everything: list[str]) -> None:
    assert len(everything) < COMMANDS_MAX
    for line in everything:
        assert not re.search(r"_test|apps/(cli|linear)/|gloo| -shared ", line), line
    library = [line for line in everything if re.search(r" -c \S*/(src|Unity)/", line)]
    assert len(library) > 30  # a file for each few sources: else the pattern finds nothing
    for line in library:
        assert "-ffp-contract=off" in line
        # The outer project's flags come first, and what they say of arithmetic is taken back.
        assert line.index("-ffast-math") < line.index("-fno-fast-math"), line


def build_the_program(outer: Path) -> None:
    """Its program sees only the public headers, and none of the library's flags."""
    own = commands(outer, "train")
    (compiles,) = [line for line in own if "-c " in line and "train.cc" in line]
    (links,) = [line for line in own if " -o train " in line]
    assert f"{build.ROOT}/include" in compiles and f"{build.ROOT}/src" not in compiles
    assert re.search(r"-std=(gnu\+\+|c\+\+)20", compiles)
    for flag in ("-Wconversion", "-fno-fast-math", "-fvisibility"):
        assert flag not in compiles
    if os.environ.get("DELTAWIRE_WHOLE_PACKAGE"):
        subprocess.run(["cmake", "--build", outer, "-j2"], check=True)
        return
    (archive,) = {word for word in shlex.split(links) if word.endswith("libdeltawire.a")}
    (outer / archive).parent.mkdir(exist_ok=True)
    shutil.copy(build.BUILD / "lib" / "libdeltawire.a", outer / archive)
    for line in (compiles, links):
        build.run("bash", "-c", line, cwd=outer)
