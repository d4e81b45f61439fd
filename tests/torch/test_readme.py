"""The programs of README and docs run as they stand there, in the environment that torchrun
would give them."""

import re
from pathlib import Path

import pytest
from sharded import IS_SUPPORTED
from torchrun import run_ranks

ROOT = Path(__file__).resolve().parents[2]
# And how many programs they have.
PAGES = {"README.md": 1, "docs/guides/pytorch.md": 2, "docs/guides/planner.md": 1}
PROGRAMS = [
    program
    for page in PAGES
    for program in re.findall(
        r"```python\n# (\S+); start it with: torchrun --nproc-per-node=(\d+) \S+\n(.*?)```",
        (ROOT / page).read_text(),
        re.S,
    )
]


def test_pages_have_programs_and_no_fragments():
    assert len(PROGRAMS) == sum(PAGES.values())
    for page, count in PAGES.items():
        assert (ROOT / page).read_text().count("```python") == count


def check_words(said, code):
    if "explain()" in code:
        assert re.search(r"^auto, tier near-lossless, \w+: .+", said, re.M), said
        assert "direct(bf16)" in said and "Mbit/s" in said, said
    elif "print(" in code:
        ratio = re.search(r"^(\d+) times fewer bytes than float32$", said, re.M)
        assert ratio and int(ratio[1]) > 2, said


@pytest.mark.parametrize(("name", "world", "code"), PROGRAMS, ids=[row[0] for row in PROGRAMS])
def test_program_runs(name, world, code, tmp_path):
    if "fully_shard" in code and not IS_SUPPORTED:
        pytest.skip("this PyTorch has no set_all_reduce_hook")
    (tmp_path / name).write_text(code)
    told = run_ranks(name, int(world), tmp_path, fresh=code in (ROOT / "README.md").read_text())
    if "hook.rank == 0" in code:  # one rank speaks
        assert "\n".join(told).count("times fewer bytes") == 1
        told = ["\n".join(told)]
    for said in told:
        check_words(said, code)
