"""What a build lacks is named, all at once; so is the extra that `deltawire.torch` lacks."""

import importlib.util
import re
import shutil
import sys

from package_build import ROOT, refused


def test_all_missing_libraries_are_named_with_their_packages(tmp_path):
    gone = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("ZLIB", "CLI11", "OpenSSL")]
    command = ("cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", "-DDELTAWIRE_TESTS=OFF", *gone)
    words = refused(*command)
    for missing in (
        "zlib (Debian: zlib1g-dev)",
        "CLI11 (Debian: libcli11-dev)",
        "OpenSSL 3 (Debian: libssl-dev)",
    ):
        assert missing in words, words
    assert "zstd" not in words
    assert "-DDELTAWIRE_CLI=OFF" in words


def least_of(extra: str) -> str:
    """What pyproject.toml asks for, without the upper limit: "torch>=2.6"."""
    text = (ROOT / "pyproject.toml").read_text()
    return re.search(rf'^{extra} = \["([^,"]*)', text, re.MULTILINE)[1]


def test_without_pytorch_its_module_names_the_package():
    program = "import sys; sys.modules['torch'] = None; import deltawire.torch"
    words = refused(sys.executable, "-c", program)
    last = words[words.rindex("ImportError: ") :]
    assert f"pip install '{least_of('torch')}'" in last


def test_without_a_compiler_its_package_is_named(tmp_path):
    (tmp_path / "bin").mkdir()
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    words = refused(shutil.which("cmake"), "-S", ROOT, "-B", tmp_path / "build", env=environment)
    assert "no C++ compiler was found; deltawire needs g++ 12 or clang 16" in words, words
    assert "apt-get install g++" in words and "CMAKE_CXX_COMPILER not set" not in words


def test_a_project_of_c_is_told_to_add_the_language(tmp_path):
    lists = "cmake_minimum_required(VERSION 3.25)\nproject(own LANGUAGES C)\n"
    (tmp_path / "CMakeLists.txt").write_text(f"{lists}add_subdirectory({ROOT} part)\n")
    words = refused("cmake", "-S", tmp_path, "-B", tmp_path / "build")
    assert "project(own LANGUAGES C CXX)" in words, words


def test_the_packages_description_works_without_the_repository():
    """A page that shows it has none of the repository's files."""
    path = ROOT / "cmake" / "readme_for_index.py"
    given = importlib.util.spec_from_file_location("readme_for_index", path)
    module = importlib.util.module_from_spec(given)
    given.loader.exec_module(module)
    readme = module.dynamic_metadata({}, {})["readme"]
    assert readme["content-type"] == "text/markdown"
    links = re.findall(r"\]\(([^)]*)\)", readme["text"])
    assert all(link.startswith("https://") for link in links), links
    assert "<!--" not in readme["text"] and "\n## Try it\n" in readme["text"]
    made = module.alone("a [b](c.md#d) [e](https://f) <!-- g\nh -->i\n![j](k.svg)\nl")
    assert made == "a b [e](https://f) i\nl"
    project = (ROOT / "pyproject.toml").read_text()
    assert 'module = "readme_for_index"' in project and '"readme"]' in project


def test_classifiers_name_the_pythons_that_wheels_were_tried_with():
    project = (ROOT / "pyproject.toml").read_text()
    named = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project))
    tried = " ".join((ROOT / "docs" / "start" / "installing.md").read_text().split())
    assert named == {"3.10", "3.11", "3.12", "3.13"}
    assert all(re.search(rf"(Python )?{re.escape(version)} on ", tried) for version in named)
