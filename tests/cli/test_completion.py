"""Completions and the manual page say what the help says, and their readers take them."""

import json
import re
import shutil
import subprocess

import pytest
from cli_program import TIMEOUT, assert_refused, must_run

SHELLS = ["bash", "zsh", "fish"]


def commands() -> list[str]:
    listing = must_run("--help").decode().split("Subcommands:\n")[1]
    return re.findall(r"^  (\w+) ", listing.split("\n\n")[0], re.MULTILINE)


def options_of(command: str) -> set[str]:
    return set(
        re.findall(r"^ +(?:-\w,)?(--[\w-]+)", must_run(command, "--help").decode(), re.MULTILINE)
    )


def fed(program: list[str], text: bytes) -> subprocess.CompletedProcess:
    return subprocess.run(program, input=text, capture_output=True, timeout=TIMEOUT, check=False)


def completed(*words: str) -> list[str]:
    """What bash offers for the last of these words."""
    script = must_run("completion", "bash").decode()
    quoted = " ".join(f"'{word}'" for word in ("deltawire", *words))
    script += f"COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _deltawire\n"
    done = fed(["bash", "--norc"], (script + 'printf "%s\\n" "${COMPREPLY[@]}"').encode())
    assert done.returncode == 0 and done.stderr == b"", done.stderr.decode()
    return done.stdout.decode().split()


def test_bash_completes_what_help_lists() -> None:
    names = commands()
    assert {"encode", "decode", "inspect", "diff", "compare", "trace", "codecs"} <= set(names)
    assert completed("") == names
    assert completed("enc") == ["encode"]
    for command in names:
        assert set(completed(command, "--")) == options_of(command) | {"--help"}
    codecs = [codec["name"] for codec in json.loads(must_run("codecs", "--json"))["codecs"]]
    assert completed("encode", "") == codecs
    assert completed("encode", "--force", "3") == ["3lc"]
    assert completed("encode", "3lc", "") == []  # a file, which bash itself completes
    assert completed("completion", "") == SHELLS
    assert completed("trace", "in") == ["info"]
    assert set(completed("trace", "info", "--j")) == {"--json"}


def test_bash_completes_codecs_wherever_they_are_values() -> None:
    assert completed("compare", "--codecs", "3") == ["3lc"]
    assert completed("compare", "--codecs", "3lc", "gc") == ["gcomp"]
    assert completed("plan", "--codecs", "3lc", "bf16", "int") == ["int8"]
    assert completed("plan", "--codecs", "3lc", "--li") == ["--link"]
    assert completed("plan", "--codecs", "3lc", "--tier", "loss") == ["lossless", "lossy"]
    assert completed("train", "linear", "--codec", "fast") == ["fastsgd"]
    assert completed("train", "linear", "--codec", "fastsgd", "fast") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_all_commands_and_options(shell: str) -> None:
    script = must_run("completion", shell).decode()
    for command in commands():
        assert command in script
        for option in options_of(command):
            assert (f"-l {option[2:]}" if shell == "fish" else option) in script, (command, option)
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here to read its script")
    done = fed([shell, "-n"], script.encode())
    assert done.returncode == 0 and done.stderr == b"", done.stderr.decode()


def test_the_manual_page_holds_the_help() -> None:
    page = must_run("manual").decode()
    plain = page.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
    assert plain.startswith(".TH DELTAWIRE 1 ") and "\n.SH SYNOPSIS\n" in plain
    for command in commands():
        said = must_run(command, "--help").decode()
        assert f"\n.SS {command}\n" in plain
        assert all(option in plain for option in options_of(command))
        assert said.split("\n")[0] in plain
        examples = said.split("Examples:\n")
        assert len(examples) == 1 or examples[1].strip() in plain
    if shutil.which("groff") is None:
        pytest.skip("no groff here to read the page")
    done = fed(["groff", "-man", "-Tutf8", "-ww", "-z"], page.encode())
    assert done.returncode == 0 and done.stderr == b"", done.stderr.decode()


def test_unknown_shell() -> None:
    assert_refused(2, ["powershell", "bash"], "completion", "powershell")
