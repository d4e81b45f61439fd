"""Every fenced block in README and docs/ says, in a comment above it, what checks it:

run here, parsed here, compiled here: this file does; "parsed here" may say more behind a `;`
run by TEST: that file runs it
output of ...: what something prints; "compared by TEST" where a test does
a fragment, not compiled; WHY: to be used sparingly
a layout, read by TEST: bytes in a table, which a decoder was written from
"""

import json
import multiprocessing
import os
import re
import subprocess
from pathlib import Path

import pages
import tomllib

BLOCKS = [block for page in pages.users_pages() for block in pages.blocks_of(page)]
CHECK = re.compile(
    r"run by (?P<runs>tests/\S+)|run here(, output compared)?|parsed here(; .+)?|compiled here"
    r"|a fragment, not compiled; .+|output of .+|a layout, read by tests/\S+"
)
LANGUAGES = {"python", "c++", "c", "cmake", "bash", "console", "json", "toml", "text", "diff"}
PROGRAM = pages.ROOT / "build" / "release" / "deltawire"


def of(language: str, check: str) -> list:
    chosen = [b for b in BLOCKS if b.language == language and (b.check or "").startswith(check)]
    assert chosen, f"no {language} block is '{check}' any more: take its test out"
    return chosen


def shell(script: str, folder: Path) -> str:
    path = [pages.ROOT / ".venv/bin", PROGRAM.parent, os.environ["PATH"]]
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env=os.environ | {"PATH": ":".join(map(str, path))},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stderr}"
    return done.stdout


def test_blocks_are_checked_by_something():
    for block in BLOCKS:
        assert block.language in LANGUAGES, f"{block.place}: name the block's language"
        assert block.check, f"{block.place}: say what checks the block: see {Path(__file__).name}"
        known = CHECK.fullmatch(block.check)
        assert known, f"{block.place}: '{block.check}' is none of the ways that tests/docs knows"
        for test in re.findall(r"tests/[\w/]+\.py", block.check):
            assert (pages.ROOT / test).is_file(), f"{block.place}: there is no {test}"
        if known["runs"]:
            text = (pages.ROOT / known["runs"]).read_text()
            named = Path(block.page).stem in text or "examples" in text
            assert named, f"{block.place}: {known['runs']} doesn't name the page"


def test_languages_parse():
    for block in BLOCKS:
        if block.language == "python":
            compile(block.text, block.place, "exec")
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
    scripts = [b for b in BLOCKS if b.language == "bash"]
    for block in scripts:
        done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)
        assert done.returncode == 0 and not done.stderr, f"{block.place}: {done.stderr}"


_PRELUDE = """
import torch
import deltawire.torch
torch.manual_seed(0)
layers = [torch.nn.Linear(1000, 100), torch.nn.Linear(100, 50), torch.nn.Linear(50, 20)]
model = network = torch.nn.Sequential(*layers, torch.nn.Linear(20, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_TEN_STEPS = """
for _ in range(10):
    loss = model(torch.randn(8, 1000)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def _run_python(blocks, folder, pipe):
    import torch.distributed as dist

    os.chdir(folder)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    for block in blocks:
        if block.page != "docs/reference/traces.md" or "trace(model" in block.text:
            place = {}
            exec(_PRELUDE, place)
        exec(compile(block.text, block.place, "exec"), place)
        if "trace(model" in block.text:
            exec(_TEN_STEPS, place)
        pipe.send(block.place)
    dist.destroy_process_group()


def test_python_runs(tmp_path):
    """Runs them on one rank with the names that pages take for granted: model, network,
    optimizer."""
    blocks = of("python", "run here")
    ours, theirs = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_run_python, args=(blocks, tmp_path, theirs), daemon=True)
    process.start()
    theirs.close()
    done = []
    try:
        while ours.poll(60):
            done.append(ours.recv())
    except EOFError:
        pass
    process.join(20)
    process.kill()
    assert done == [block.place for block in blocks], "the next one fails; its error is above"


def test_shell_runs(tmp_path):
    for block in of("bash", "run here"):
        shell(block.text, tmp_path)


def test_console_shows_what_is_printed():
    for block in of("console", "run here"):
        commands = re.split(r"^\$ ", block.text, flags=re.M)[1:]
        for command, _, output in (text.partition("\n") for text in commands):
            said = shell(command, pages.ROOT)
            assert said, f"{block.place}: '{command}' prints nothing"
            if "output compared" in block.check:
                assert said == output, block.place


def test_cpp_compiles(tmp_path):
    """Compiles all blocks at once, each in its own namespace."""
    includes, bodies = set(), []
    elsewhere = ("a fragment", "run by tests/docs/test_tour.py")
    chosen = [b for b in BLOCKS if b.language == "c++" and not b.check.startswith(elsewhere)]
    for number, block in enumerate(chosen):
        lines = block.text.splitlines()
        includes |= {line for line in lines if line.startswith("#include")}
        body = "\n".join("" if line.startswith("#include") else line for line in lines)
        place = f'#line {block.line + 1} "{block.page}"'
        bodies.append(f"namespace block_{number} {{\n{place}\n{body}\n}}")
    assert len(bodies) > 3
    program = tmp_path / "blocks.cc"
    program.write_text("\n".join([*sorted(includes), *bodies]))
    done = subprocess.run(
        ["g++", "-std=c++20", "-Wall", "-Wextra", "-fsyntax-only", "-I"]
        + [pages.ROOT / "include", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_port_range_of_the_page_is_one():
    from deltawire import arguments

    page = (pages.ROOT / "docs" / "guides" / "deployment.md").read_text()
    ranges = set(re.findall(r'DELTAWIRE_PORT=([\d-]+)|port="([\d-]+)"', page))
    assert {arguments.ports(a or b) for a, b in ranges} == {(29600, 29699)}
