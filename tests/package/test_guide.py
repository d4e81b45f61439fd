"""docs/guides/cpp.md's programs, built in a folder of their own as it says, print what it says."""

import re

import package_build as build

PAGE = (build.ROOT / "docs" / "guides" / "cpp.md").read_text()


def block(language: str, which: int = 0) -> str:
    return re.findall(rf"```{re.escape(language)}\n(.*?)```", PAGE, re.S)[which]


def test_programs(tmp_path):
    prefix = build.install(tmp_path / "installed")
    app = tmp_path / "app"
    app.mkdir()
    (app / "CMakeLists.txt").write_text(block("cmake"))
    steps = block("bash", 1).replace("$HOME/deltawire", str(prefix))
    for program in range(2):
        (app / "app.cc").write_text(block("c++", program))
        said = build.run("bash", "-euc", steps, cwd=app).splitlines()
        shown = block("text", program).splitlines()
        assert sorted(said[-len(shown) :]) == sorted(shown)
