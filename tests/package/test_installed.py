"""What `cmake --install` makes is found and linked by others, wherever it has been moved, in the
ways that README and docs/start/installing.md name."""

import os
import platform
from pathlib import Path

import package_build as build
import pytest

pytestmark = pytest.mark.timeout(300)  # compilers on a busy machine


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    return build.install(tmp_path_factory.mktemp("install") / "moved")


def test_find_package_static_and_shared(prefix, tmp_path):
    build.run(
        *("cmake", "-S", build.ROOT / "tests" / "package" / "found", "-B", tmp_path, "-GNinja"),
        *(f"-DCMAKE_PREFIX_PATH={prefix}", f"-DEXAMPLE={build.EXAMPLE}"),
        f"-DHAS_MPI={(prefix / 'lib' / 'libdeltawire_mpi.a').is_file()}",
    )
    build.run("cmake", "--build", tmp_path, "-j2")
    linked = build.run("ldd", tmp_path / "train_shared")
    assert f"libdeltawire.so.0.2 => {prefix}" in linked
    assert "libdeltawire" not in build.run("ldd", tmp_path / "train_static")
    for kind in ("static", "shared"):
        build.train_two_ranks(tmp_path / f"train_{kind}")
        with_mpi = tmp_path / f"mpi_{kind}"
        if with_mpi.exists():  # else CMake's output says that this build lacks MPI
            check_dispatch(with_mpi)


def check_dispatch(program: Path) -> None:
    """The library has the kernels of every target, and runs the best or the one that is named."""
    _, *targets = build.run(program).split()
    if platform.machine() == "x86_64":
        assert targets == ["reference", "avx2", "avx512", "avx512vbmi"]
    told = os.environ | {"DELTAWIRE_FORCE_TARGET": "reference"}
    assert build.run(program, env=told).split()[0] == "reference"
    with open("/proc/cpuinfo") as cpu:
        if " avx2 " in cpu.read():
            assert build.run(program).split()[0] != "reference"


def refused(folder: Path, prefix: Path, request: str) -> str:
    """Why CMake does not take the package."""
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES NONE)\n"
        f"find_package(deltawire {request})\n"
    )
    return build.refused(
        *("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    )


def test_what_a_package_lacks_is_named(prefix, tmp_path):
    text = refused(tmp_path, prefix, "REQUIRED COMPONENTS infiniband")
    assert "no component infiniband, only static, shared" in text and "DELTAWIRE_MPI=ON" in text


def test_a_project_of_c_alone_links_the_static_library(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(own LANGUAGES C)\n"
        "find_package(deltawire REQUIRED COMPONENTS static)\n"
        f"add_executable(app {build.ROOT}/examples/c/train.c)\n"
        "target_link_libraries(app deltawire::deltawire)\n"
    )
    build.run("cmake", "-S", tmp_path, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    build.run("cmake", "--build", tmp_path)


def test_another_minor_version_does_not_fit(prefix, tmp_path):
    text = refused(tmp_path, prefix, "0.1 REQUIRED")
    assert "0.1" in text and "version: 0.2.0" in text


def test_headers_say_nothing_of_the_source_tree(prefix):
    installed = {path.name for path in (prefix / "include" / "deltawire").iterdir()}
    assert {"deltawire.h", "deltawire.hpp", "session.h", "export.h"} <= installed
    for path in [
        *(prefix / "lib" / "cmake" / "deltawire").iterdir(),
        prefix / "lib/pkgconfig/deltawire.pc",
    ]:
        assert str(build.ROOT) not in path.read_text(), path
        assert str(prefix) not in path.read_text(), path
