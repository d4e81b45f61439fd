"""What scripts/new_codec.py makes: a codec that compiles, and passes what needs no build."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from spec_codecs import decode_coded, refusal

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"

HOUSE = ("CHANGELOG.md", "docs/design/architecture.md", "pyproject.toml", "src/codecs/registry.cc")
FILES = {"spec.md", "third.cc", "third_ops.h", "third_ref.cc", "third_test.cc", "third_decoder.py"}


def new_codec(root: Path, name: str) -> subprocess.CompletedProcess:
    command = [sys.executable, SCRIPTS / "new_codec.py", name, "--root", root]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of two codecs, and a third made by the script."""
    root = tmp_path_factory.mktemp("tree")
    for name in (*HOUSE, "src/codecs/fp32/spec.md", "src/codecs/threelc/spec.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    made = new_codec(root, "third")
    assert made.returncode == 0, made.stderr
    listed = {Path(line) for line in made.stdout.splitlines() if line.startswith("/")}
    folder = root / "src" / "codecs" / "third"
    registry = root / "src" / "codecs" / "registry.cc"
    assert listed == {root / "CHANGELOG.md", registry, *(folder / name for name in FILES)}
    return root


def test_files(tree: Path) -> None:
    folder = tree / "src" / "codecs" / "third"
    assert {path.name for path in folder.iterdir()} == FILES
    for path in folder.iterdir():
        text = path.read_text()
        assert "NAME" not in text and "Name" not in text and "4242" not in text, path
    assert ".id = 4," in (folder / "third.cc").read_text()
    assert "Codec id 4. Spec string `third`" in (folder / "spec.md").read_text()
    for name in ("third.cc", "third_ref.cc"):
        lines = (folder / name).read_text().splitlines()
        includes = [line for line in lines if line.startswith('#include "')]
        assert includes == sorted(includes)
    assert "- Codec `third`" in (tree / "CHANGELOG.md").read_text()
    before, after = (
        (root / "src/codecs/registry.cc").read_text().splitlines() for root in (ROOT, tree)
    )
    last = max(at for at, line in enumerate(before) if line.startswith("  ROW("))
    continued = f"{before[last]:<30}\\"
    assert after == [*before[:last], continued, "  ROW(third)", *before[last + 1 :]]


def test_style(tree: Path) -> None:
    for command in (
        [SCRIPTS / "check_layers.py", tree],
        ["-m", "ruff", "check", tree / "src"],
        ["-m", "ruff", "format", "--check", tree / "src"],
    ):
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_decoder_decodes(tree: Path) -> None:
    path = tree / "src" / "codecs" / "third" / "third_decoder.py"
    spec = importlib.util.spec_from_file_location("third_decoder", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (module.CODEC.name, module.CODEC.codec_id) == ("third", 4)
    for coded, values in module.GOOD.values():
        assert decode_coded(module.CODEC, coded).tobytes() == np.array(values, "<f4").tobytes()
    for coded, kind in module.REFUSED.values():
        assert refusal(module.CODEC, coded) == kind


@pytest.mark.parametrize("file", ["third.cc", "third_ref.cc"])
def test_it_compiles(tree: Path, file: str) -> None:
    command = ["c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command += [f"-I{folder}" for folder in (tree / "src", ROOT / "src", ROOT / "include")]
    done = subprocess.run(
        [*command, tree / "src" / "codecs" / "third" / file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["third", "3lc", "fp32", "Fourth", "a_b", "", "float", "../x"])
def test_names_that_will_not_do(tree: Path, name: str) -> None:
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    done = new_codec(tree, name)
    assert done.returncode == 2
    assert done.stderr.startswith("scripts/new_codec.py: ") and done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before


def test_a_tree_without_codecs(tmp_path: Path) -> None:
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    done = new_codec(tmp_path, "first")
    assert done.returncode == 2 and "--root" in done.stderr
