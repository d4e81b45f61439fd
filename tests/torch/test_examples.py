"""The examples that torchrun starts: the pages that explain them have them word for word, and what
they print looks as the pages say."""

import gzip
import os
import re
import shutil
from pathlib import Path

import pytest
from torchrun import run_ranks

ROOT = Path(__file__).resolve().parents[2]
MNIST = Path(os.environ.get("DELTAWIRE_DATA", "none")) / "mnist"


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def forms(*texts: str) -> set[str]:
    """The lines without their numbers, and without torch's own: "[Gloo] ...", "[W731 ...] ..."."""
    lines = (line for text in texts for line in text.splitlines() if not line.startswith("["))
    return {re.sub(r"[\d.]+", "N", line) for line in lines}


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("start/quickstart.md", "ddp_lenet5.py"),
        ("start/quickstart.md", "ddp_mnist.py"),
        ("guides/local-steps.md", "local_steps.py"),
        ("guides/parameter-server.md", "parameter_server.py"),
    ],
)
def test_pages_have_the_programs(name, program):
    code = (ROOT / "examples" / program).read_text()
    assert f"```python\n{code}```" in page(name), f"docs/{name} has another examples/{program}"
    assert f"`{program}`" in (ROOT / "examples" / "README.md").read_text()


def test_ddp_learns_with_fewer_bytes(tmp_path):
    shutil.copy(ROOT / "examples" / "ddp_lenet5.py", tmp_path)
    said = run_ranks("ddp_lenet5.py", 2, tmp_path, {"STEPS": "41"})
    shown = re.search(r"^```text\n(step 0.*?)```", page("start/quickstart.md"), re.S | re.M)[1]
    assert forms(*said) == forms(shown)
    for text in said:
        right, fewer = map(int, re.search(r"(\d+)% right, (\d+) times fewer", text).groups())
        assert right > 30 and fewer > 20, text  # guessing is 10 %


def write_some(images: int, prefix: str, folder: Path) -> None:
    """The first of MNIST's, in packed files."""
    for name, header, size in (("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)):
        plain = MNIST / f"{prefix}-{name}-ubyte"
        packed = plain.with_suffix(".gz")
        place, reader = (packed, gzip.open) if packed.exists() else (plain, open)
        with reader(place, "rb") as source:
            content = source.read(header + images * size)
        (folder / packed.name).write_bytes(gzip.compress(content, 1))


@pytest.mark.skipif(not MNIST.is_dir(), reason="DELTAWIRE_DATA names no folder with mnist/")
def test_ddp_learns_real_images(tmp_path):
    shutil.copy(ROOT / "examples" / "ddp_mnist.py", tmp_path)
    write_some(3000, "train", tmp_path)
    write_some(1000, "t10k", tmp_path)
    first, second = run_ranks("ddp_mnist.py", 2, tmp_path, {"STEPS": "41"}, (str(tmp_path),))
    shown = re.findall(r"^```text\n(step 0.*?)```", page("start/quickstart.md"), re.S | re.M)[1]
    assert forms(first) == forms(shown) and not forms(second)
    right, fewer = map(int, re.search(r"(\d+) of .* right, (\d+) times fewer", first).groups())
    assert right > 400 and fewer > 20, first  # guessing gives 100


def test_local_steps_end_equal(tmp_path):
    shutil.copy(ROOT / "examples" / "local_steps.py", tmp_path)
    said = run_ranks("local_steps.py", 2, tmp_path, {"ROUNDS": "4"})
    ends = [re.search(r"(\d+) rounds, ([\d.]+) from the truth, (\d+) times", s) for s in said]
    assert ends[0][1] == ends[1][1] == "4" and ends[0][2] == ends[1][2], said
    assert float(ends[0][2]) < 1 and int(ends[0][3]) > 5, said


def test_parameter_servers_teach_their_workers(tmp_path):
    shutil.copy(ROOT / "examples" / "parameter_server.py", tmp_path)
    said = run_ranks("parameter_server.py", 4, tmp_path, {"STEPS": "60"})
    text = page("guides/parameter-server.md")
    shown = re.search(r"^```text\n(step 0.*?)```", text, re.S | re.M)[1]
    assert forms(*said) == forms(shown)
    assert ["served 60 steps" in text for text in said] == [True, True, False, False], said
    ends = [re.search(r"([\d.]+) from the truth, (\d+) times fewer", text) for text in said[2:]]
    assert ends[0][1] == ends[1][1] and float(ends[0][1]) < 0.96, said
    assert all(int(end[2]) > 20 for end in ends), said
