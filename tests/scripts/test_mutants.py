"""The program that plants mutants: the mutants of code, and their verdicts in a toy project."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from refusals import raised

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))
import layer_tests  # noqa: E402
import mutant_rules  # noqa: E402
import mutants  # noqa: E402
import tree_copy  # noqa: E402


def made(path: str, text: str) -> dict[int, set[str]]:
    """What each line may become, without its indentation."""
    found: dict[int, set[str]] = {}
    for fault in mutant_rules.faults(path, text):
        found.setdefault(fault.line, set()).add(fault.new.strip())
    return found


def line(path: str, text: str) -> set[str]:
    """What the last line may become."""
    return made(path, text).get(text.count("\n") + 1, set())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b;", {"x = a <= b;", ";"}),
        ("int x = a >> b;", {"int x = a << b;"}),
        ("total += a;", {"total -= a;", ";"}),
        ("return std::min(a, b);", {"return std::max(a, b);", ";"}),
        ("int y = std::numeric_limits<int>::max();", set()),
        ("bool x = a && b;", {"bool x = a || b;"}),
        ("bool x = true;", {"bool x = false;"}),
        ("int x = 7;", {"int x = 6;", "int x = 8;"}),
        ("int x = 1'000U;", {"int x = 999U;", "int x = 1001U;"}),
        ("int x = 0x10;", {"int x = 0x11;"}),
        ("float x = 0.5F;", {"float x = 1.5F;"}),
        ("std::uint32_t x{};", set()),
        ("++count_;", {"--count_;"}),
        ("if (!f(a)) return {};", {"if (!(!f(a))) return {};", "if (!f(a)) ;"}),
        ("if (auto v = f(a); v.ok()) {", {"if (auto v = f(a); !(v.ok())) {"}),
        ("break;", {";"}),
        ("part.apply(x);", {";"}),
        ("a[i].b->c = d;", {";"}),
        ("std::vector<int> values(x);", set()),
        ("values.reserve(4);", set()),
        ("int* at = &a;", set()),
        ("auto&& x = y;", set()),
        ("// a < b", set()),
        ('say("a < b");', {";"}),
        ('text = "a" + b;', {";"}),
        ("#include <a/b 1>", set()),
        ("static_assert(sizeof(int) == 4);", set()),
        ("assert(bits <= 56 && value >> bits == 0);", set()),
        ("using T = A<3>;", set()),
    ],
)
def test_a_line_of_cpp(text: str, expected: set[str]) -> None:
    assert line("a.cc", "f();\n" + text) == expected


def test_a_statement_of_several_lines_is_not_dropped() -> None:
    assert made("a.cc", "f();\nx = g(a,\n  h(b));\n") == {1: {";"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b", {"x = a <= b"}),
        ("x = a is None", {"x = a is not None"}),
        ("x = a not in b", {"x = a in b"}),
        ("x = a + b", {"x = a - b"}),
        ("x = 'a' + b", set()),
        ("x = f'{a + 1}'", set()),
        ("x = a and b", {"x = a or b"}),
        ("x = max(a, b)", {"x = min(a, b)"}),
        ("x = True", {"x = False"}),
        ("x = 3", {"x = 2", "x = 4"}),
        ("self.x = y", {"pass"}),
        ("x -= y", {"pass"}),
        ("f(x)", {"pass"}),
        ("return x", {"pass"}),
        ("raise ValueError", {"pass"}),
        ("if a: pass", {"if (not (a)): pass"}),
        ("x: int | None = y", set()),
        ("assert a < b", set()),
        ("'''a < b, 3'''", set()),
    ],
)
def test_a_line_of_python(text: str, expected: set[str]) -> None:
    assert line("a.py", f"def f(a: int | None = None):\n    {text}") == expected


def test_python_outside_of_functions_keeps_its_statements() -> None:
    assert made("a.py", "x = y\nf(3)\ndef g():\n    self.é = b < c\n") == {
        2: {"f(2)", "f(4)"},
        4: {"pass", "self.é = b <= c"},
    }


TABLE = """\
<!-- layers -->
| layer | folder | headers | layers | single headers |
|---|---|---|---|---|
| `toy` | `src/toy` | `toy.h` | | |
| `lab` | `lab` | | | `public` |
<!-- /layers -->
"""
CMAKE = """\
cmake_minimum_required(VERSION 3.25)
project(toy LANGUAGES CXX)
enable_testing()
add_executable(deltawire_toy_test src/toy/toy.cc src/toy/toy_test.cc)
add_test(NAME deltawire_toy_test.1 COMMAND deltawire_toy_test)
"""
TOY = """\
int sum(int a, int b) {
  return a + b;
}
int spare(int a) {
  return a * a;
}
#ifdef NOWHERE
int nowhere = 3;
#endif
"""
TOY_TEST = """\
int sum(int, int);
int main() { return sum(1, 2) == 3 ? 0 : 1; }
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A layer of one file: sum() is tested, spare() is not."""
    for name, text in {
        "docs/design/architecture.md": TABLE,
        "CMakeLists.txt": CMAKE,
        "src/toy/toy.cc": TOY,
        "src/toy/toy_test.cc": TOY_TEST,
        ".gitignore": "build\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    named = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", root, *named, *arguments], check=True)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "more")


def verdicts(root: Path) -> dict[str, str]:
    """The verdict by what the line becomes."""
    entries = json.loads((root / "build" / "mutants" / "results.json").read_text())
    return {entry["new"].strip(): entry["verdict"] for entry in entries}


def test_each_verdict(tree: Path, capfd: pytest.CaptureFixture) -> None:
    chosen = ["--root", str(tree), "--layer", "toy"]
    assert mutants.main([*chosen, "--jobs", "2"]) == 1
    found = verdicts(tree)
    assert found == {
        "return a - b;": "killed",
        "return a / a;": "lived",
        "int nowhere = 4;": "same",
        "int nowhere = 2;": "same",
        ";": "refused",
    }
    out = capfd.readouterr().out
    assert "lived: src/toy/toy.cc:5: arithmetic\n    - return a * a;\n    + return a / a;" in out
    row = out.splitlines()[-1].split()
    assert row == ["toy", "1", "1", "0", "2", "2", "50.0"]
    # Nothing of it is left, here or in the copies.
    for copy in (tree, *(tree / "build" / "mutants").glob("copy-*")):
        assert (copy / "src" / "toy" / "toy.cc").read_text() == TOY
    # A mutant marked as equivalent no longer counts, and known verdicts are not tested again.
    file = tree / "build" / "mutants" / "results.json"
    entries = json.loads(file.read_text())
    for entry in entries:
        entry["equivalent"] = "nobody calls it" if entry["verdict"] == "lived" else ""
    file.write_text(json.dumps(entries))
    assert mutants.main([*chosen, "--resume"]) == 0
    out = capfd.readouterr().out
    assert "tests take" not in out
    assert out.splitlines()[-1].split() == ["toy", "1", "0", "1", "2", "2", "100.0"]


def listed(root: Path, capsys: pytest.CaptureFixture, *arguments: str) -> list[str]:
    """The lines that --list shows of mutants' new text."""
    assert mutants.main(["--root", str(root), "--list", *arguments]) == 0
    return [text[6:] for text in capsys.readouterr().out.splitlines() if text.startswith("    + ")]


def test_changed_lines_alone(tree: Path, capsys: pytest.CaptureFixture) -> None:
    assert listed(tree, capsys) == []
    git(tree, "checkout", "-q", "-b", "other")
    toy = tree / "src" / "toy" / "toy.cc"
    toy.write_text(TOY.replace("a * a;", "a * b;"))
    commit(tree)
    assert listed(tree, capsys) == ["return a / b;", ";"]
    toy.write_text(toy.read_text() + "bool more = true;\n")  # not committed
    (tree / "src" / "toy" / "new.h").write_text(
        "// 3 < 4\nbool fresh = true;\n"
    )  # not known to git
    (tree / "src" / "toy" / "other_test.cc").write_text("bool tested = true;\n")
    (tree / "docs" / "page.md").write_text("true\n")
    new = ["bool fresh = false;", "return a / b;", ";", "bool more = false;"]
    assert listed(tree, capsys) == new
    assert listed(tree, capsys, "--changed", "other") == [new[0], new[3]]


def test_a_sample_follows_from_its_seed(tree: Path, capsys: pytest.CaptureFixture) -> None:
    chosen = ("--layer", "all", "--sample", "3")
    first = listed(tree, capsys, *chosen)
    assert len(first) == 3
    assert {text[:7] for text in first} == {"return ", "int now"} or ";" in first  # of three lines
    assert listed(tree, capsys, *chosen) == first
    seeds = {tuple(listed(tree, capsys, *chosen, "--seed", str(seed))) for seed in range(9)}
    assert len(seeds) > 1
    assert len(listed(tree, capsys, "--layer", "toy", "--sample", "99")) == 6


def as_shell(monkeypatch: pytest.MonkeyPatch, run: str, grace: float = 60) -> None:
    """Makes a shell command the tests of every layer."""
    made = layer_tests.Tests("true", "true", run, "none", grace)
    monkeypatch.setattr(layer_tests, "tests_of", lambda layer, cores: made)
    monkeypatch.setattr(layer_tests, "nearest", lambda layer, path, root, run: "")


def plant_python(root: Path, text: str) -> list[str]:
    """Arguments for the mutants of a file of lab/."""
    (root / "lab").mkdir()
    (root / "lab" / "a.py").write_text(text)
    return ["--root", str(root), "--layer", "lab"]


def test_python(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = plant_python(tree, "high = 5\nlow = 5\n")
    as_shell(monkeypatch, f"{sys.executable} -c 'import lab.a; assert lab.a.low == 5'")
    assert mutants.main(chosen) == 1
    assert verdicts(tree) == {
        **dict.fromkeys(("high = 4", "high = 6"), "lived"),
        **dict.fromkeys(("low = 4", "low = 6"), "killed"),
    }


def test_what_hangs_is_killed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = plant_python(tree, "stays = False\n")
    as_shell(monkeypatch, "while grep -q True lab/a.py; do sleep 0.1; done", grace=1)
    assert mutants.main(chosen) == 0
    assert verdicts(tree) == {"stays = True": "killed"}


def test_tests_that_fail_without_a_mutant(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    as_shell(monkeypatch, "echo it is broken; false")
    assert mutants.main(["--root", str(tree), "--layer", "toy"]) == 2
    err = capsys.readouterr().err
    assert "toy: `echo it is broken; false` failed without any mutant" in err


def test_an_interrupt_keeps_what_is_known(tree: Path) -> None:
    """Ctrl-C while the second of two mutants hangs."""
    toy, test = tree / "src" / "toy" / "toy.cc", tree / "src" / "toy" / "toy_test.cc"
    toy.write_text("int spare = 1;\nbool stays = false;\n")
    test.write_text("extern bool stays;\nint main() {\n  while (stays) {\n  }\n}\n")
    command = [sys.executable, SCRIPTS / "mutants.py", "--root", tree, "--layer", "toy"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    shown = []
    while "killed" not in "".join(shown) and "lived" not in "".join(shown):
        shown.append(process.stdout.readline())
        assert shown[-1], process.stderr.read()
    planted = tree / "build" / "mutants" / "copy-0" / "src" / "toy" / "toy.cc"
    until = time.monotonic() + 60
    while "stays = true" not in planted.read_text() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert "stopped; --resume goes on" in err
    assert process.returncode == 1, out + err
    assert verdicts(tree)["int spare = 2;"] == "lived"
    assert planted.read_text() == toy.read_text()


def test_an_interrupt_ends_the_first_run_too(tree: Path) -> None:
    """Ctrl-C while tests without a mutant hang: nothing of them is left."""
    sleep = f"sleep {100_000 + os.getpid()}"
    test = tree / "src" / "toy" / "toy_test.cc"
    test.write_text(f'#include <cstdlib>\nint main() {{ return std::system("exec {sleep}"); }}\n')
    command = [sys.executable, SCRIPTS / "mutants.py", "--root", tree, "--layer", "toy"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def sleeps() -> bool:
        found = subprocess.run(["pgrep", "-f", f"^{sleep}$"], capture_output=True, check=False)
        return found.returncode == 0

    until = time.monotonic() + 60
    while not sleeps() and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "stopped" in err and process.returncode == 2
    while sleeps() and time.monotonic() < until:
        time.sleep(0.05)
    assert not sleeps()


@pytest.mark.skipif(platform.machine() == "aarch64", reason="kernels for NEON run without qemu")
def test_a_layer_that_the_machine_lacks_something_for(
    tree: Path, capsys: pytest.CaptureFixture
) -> None:
    (tree / "src" / "toy" / "toy_neon.cc").write_text("int x = 1;\n")
    assert mutants.main(["--root", str(tree), "--layer", "neon"]) == 2, "nothing ran"
    assert "neon: SKIPPED, 1 mutants: no build/aarch64-sysroot" in capsys.readouterr().out


def test_a_command_that_takes_too_long_ends_with_all_its_groups(tmp_path: Path) -> None:
    sleep = f"sleep {200_000 + os.getpid()}"
    shell = tree_copy.Shell()
    assert shell.run(f"set -m; {sleep} & wait", tmp_path, 1)[0] is None
    found = subprocess.run(["pgrep", "-f", f"^{sleep}$"], capture_output=True, check=False)
    assert found.returncode != 0


def test_wrong_usage(tree: Path, capsys: pytest.CaptureFixture) -> None:
    root = ["--root", str(tree)]
    assert mutants.main([*root, "--layer", "none"]) == 2
    assert "there are: lab" in capsys.readouterr().err
    assert mutants.main([*root, "--changed", "nothing"]) == 2
    assert "--changed" in capsys.readouterr().err
    for wrong in (["--jobs", "0"], ["--sample", "0"], ["--layer", "toy", "--changed", "main"]):
        assert raised(SystemExit, mutants.main, [*root, *wrong]).code == 2


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        ("src/wire/frame_reader.cc", "wire"),
        ("include/deltawire/frame.h", "wire"),
        ("include/deltawire/deltawire.hpp", None),
        ("python/deltawire/errors.py", "python"),
        ("python/deltawire/torch/hook.py", "torch"),
        ("python/deltawire/torch/gpu/kernels/blocks.py", None),
        ("python/src/module.cc", "python"),
        ("lab/demo/report.py", "lab"),
        ("src/wire/frame_test.cc", None),
        ("src/codecs/bf16/bf16_decoder.py", None),
        ("src/codecs/bf16/spec.md", None),
        ("src/codecs/fuzz_pairs.cc", None),
        ("tests/fuzz/frame_repair.h", None),
        ("bench/coding.py", None),
        ("scripts/mutants.py", None),
    ],
)
def test_the_layer_of_a_file(path: str, layer: str | None) -> None:
    assert layer_tests.Layers(ROOT).of(path) == layer


def test_the_nearest_tests() -> None:
    run = layer_tests.tests_of("base", 1).run
    near = layer_tests.nearest("base", "src/base/varint.h", ROOT, run)
    assert near.startswith("export GTEST_FILTER='") and near.endswith(run)
    assert "Varint.*:" in near and "Crc32c" not in near
    assert layer_tests.nearest("wire", "src/wire/no_such_file.cc", ROOT, run) == ""
    near = layer_tests.nearest("lab", "lab/keys.py", ROOT, run)
    assert "pytest" in near and near.endswith(" tests/lab/test_keys.py")


def test_applications_are_judged_by_their_tests_in_python_too() -> None:
    tests = layer_tests.tests_of("cli", 1)
    assert tests.build.endswith(" deltawire") and tests.run.endswith(" tests/cli")
    near = layer_tests.nearest("cli", "apps/cli/measure/rows.h", ROOT, tests.run)
    assert "ctest" in near and "pytest" not in near


@pytest.mark.thorough
def test_every_layer_of_this_tree_has_mutants() -> None:
    layers = layer_tests.Layers(ROOT)
    found = mutants.generate(ROOT, layers, layers.names)
    assert set(found) == set(layers.names)
    assert all(len(of_layer) > 100 for of_layer in found.values())


def test_the_help_teaches() -> None:
    command = [sys.executable, SCRIPTS / "mutants.py", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for word in ("killed", "lived", "refused", "equivalent", "--resume", "examples"):
        assert word in shown
