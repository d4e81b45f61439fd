"""The workflows are YAML, and what they run is there."""

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is in requirements-dev.txt")
ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_there_are_workflows():
    assert [path.stem for path in WORKFLOWS] == ["nightly", "release", "test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_runs_something_that_is_there(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job.get("needs", "wheels") in workflow["jobs"] or "needs" not in job
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert re.fullmatch(r"\S+/\S+@\S+", step.get("uses", "a/b@1"))
            for target in re.findall(
                r"^make (\S+|\$\{\{.*?\}\})", step.get("run", ""), re.MULTILINE
            ):
                named = matrix["target"] if target.startswith("$") else [target]
                assert {word.split()[0] for word in named} <= TARGETS


def test_a_release_knows_where_the_version_stands():
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    (pattern,) = re.findall(r'grep -q "\^(.*?)\$\{GITHUB_REF_NAME#v\} "', release)
    assert re.search(
        rf"^{re.escape(pattern)}\d+\.\d+\.\d+ ", (ROOT / "CMakeLists.txt").read_text(), re.M
    )
