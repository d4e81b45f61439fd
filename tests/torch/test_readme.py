"""README's programs run as they stand there, in the environment that torchrun would give them."""

import re
from pathlib import Path

import pytest
from torchrun import run_ranks

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
PROGRAMS = re.findall(
    r"```python\n# (\S+); start it with: torchrun --nproc-per-node=(\d+) \S+\n(.*?)```",
    README,
    re.S,
)


def test_readme_has_programs_and_no_fragments():
    assert len(PROGRAMS) == README.count("```python") == 3


@pytest.mark.parametrize(("name", "world", "code"), PROGRAMS, ids=[row[0] for row in PROGRAMS])
def test_program_runs(name, world, code, tmp_path):
    (tmp_path / name).write_text(code)
    for said in run_ranks(name, int(world), tmp_path):
        if "print(" in code:
            ratio = re.search(r"^(\d+) times fewer bytes than float32$", said, re.M)
            assert ratio and int(ratio[1]) > 2, said
