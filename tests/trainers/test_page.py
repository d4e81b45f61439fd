"""docs/guides/trainers.md shows the programs of examples/trainers as they are."""

import re

from page import BLOCK, PAGE, diff_of, written
from recipes import FOLDER


def test_page_has_every_program_and_shows_it_as_it_is():
    page = PAGE.read_text()
    assert written(page) == page, "run: .venv/bin/python tests/trainers/page.py"
    programs = sorted(path.name for path in FOLDER.glob("*.py"))
    shown = [match[1] for match in BLOCK.finditer(page)]
    assert sorted(shown) == sorted(set(programs) - {"slurm.py"}), "slurm.py differs as ddp.py does"
    assert diff_of("slurm.py").count("\n+") == diff_of("ddp.py").count("\n+")
    for path in FOLDER.iterdir():
        if path.is_file():
            assert f"examples/trainers/{path.name}" in page, path.name


def test_versions_on_the_page_are_those_that_are_run():
    requirements = (FOLDER.parents[1] / "requirements-trainers.txt").read_text()
    pinned = re.findall(r"^(\w+)(?:\[\w+\])?==(\S+)$", requirements, re.M)
    assert len(pinned) == 5
    page = PAGE.read_text()
    for name, version in pinned:
        assert f"{name} {version}" in page.lower(), name
