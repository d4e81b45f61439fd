"""docs/cpp-guide.md's first program, built in a folder of its own as the page says, prints what it
says."""

import re

import package_build as build

PAGE = (build.ROOT / "docs" / "cpp-guide.md").read_text()


def block(language: str, which: int = 0) -> str:
    return re.findall(rf"```{re.escape(language)}\n(.*?)```", PAGE, re.S)[which]


def test_first_program(tmp_path):
    prefix = build.install(tmp_path / "installed")
    app = tmp_path / "app"
    app.mkdir()
    (app / "CMakeLists.txt").write_text(block("cmake"))
    (app / "app.cc").write_text(block("c++"))
    steps = block("bash", 1).replace("$HOME/deltawire", str(prefix))
    said = build.run("bash", "-euc", steps, cwd=app)
    assert sorted(said.splitlines()[-2:]) == sorted(block("text").splitlines())
