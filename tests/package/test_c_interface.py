"""The C interface from outside: by pkg-config, with the shared and the static library."""

import os
from pathlib import Path

import package_build as build
import pytest

pytestmark = pytest.mark.timeout(300)  # compilers on a busy machine

EXAMPLES = build.ROOT / "examples"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    return build.install(tmp_path_factory.mktemp("install") / "moved")


def flags(prefix: Path, *options: str) -> list[str]:
    """pkg-config's output; the library's .pc file finds its new place after a move."""
    found = os.environ | {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    return build.run("pkg-config", "--cflags", "--libs", *options, "deltawire", env=found).split()


@pytest.mark.parametrize("way", ["shared", "static"])
def test_a_c_program_trains(prefix, tmp_path, way):
    program = tmp_path / "train"
    strict = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1")
    found = flags(prefix)
    if way == "static":
        strict, found = (*strict, "-static"), flags(prefix, "--static")
    build.run("cc", *strict, EXAMPLES / "c" / "train.c", *found, "-o", program)
    told = os.environ | {"LD_LIBRARY_PATH": str(prefix / "lib")}
    assert ("libdeltawire.so" in linked_with(program)) == (way == "shared")
    build.train_two_ranks(program, rendezvous=True, env=told)


@pytest.mark.parametrize(
    ("compiler", "source"),
    [(("cc", "-std=c99"), "c/elastic.c"), (("c++", "-std=c++20"), "cpp/elastic.cc")],
)
def test_ranks_go_on_without_one_that_is_killed(prefix, tmp_path, compiler, source):
    program = tmp_path / "elastic"
    strict = (*compiler, "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1")
    build.run(*strict, EXAMPLES / source, *flags(prefix), "-o", program)
    build.lose_a_rank(program, env=os.environ | {"LD_LIBRARY_PATH": str(prefix / "lib")})


def linked_with(program: Path) -> str:
    return build.run("readelf", "--dynamic", program)
