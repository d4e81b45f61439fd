"""Flower's PyTorch quickstart on MNIST, unchanged and with deltawire's two lines.

    DELTAWIRE_DATA=... python -m lab.flower.quickstart --app .../examples/quickstart-pytorch

The app comes from a local copy of Flower's repository, and is copied twice. In both copies the
images are MNIST's instead of CIFAR-10's (lab/flower/mnist.py; the network is the quickstart's), and
the server counts the bytes of arrays in its grid. The second copy also has deltawire's lines. Both
run in Flower's simulation engine. The program prints the diff of the copies, and a table of bytes
and of accuracy on MNIST's test images.
"""

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lab.command.program import main_of, make_parser

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "pytorchexample"
OURS = {
    "client_app.py": (
        ("import torch\n", "import deltawire.flower\nimport torch\n"),
        ("app = ClientApp()\n", 'app = ClientApp(mods=[deltawire.flower.mod("{up}")])\n'),
    ),
    "server_app.py": (
        ("import torch\n", "import deltawire.flower\nimport torch\n"),
        (
            "    # Start strategy,",
            '    strategy = deltawire.flower.Compressed(strategy, down="{down}")\n\n'
            "    # Start strategy,",
        ),
    ),
}
_FOREIGN = re.compile(
    r"^(from (datasets|flwr_datasets|torchvision)\b|pytorch_transforms =).*\n", re.M
)


class QuickstartError(Exception):
    """An app that isn't the quickstart, or a run that failed; one line says why."""


def replaced(text: str, old: str, new: str, where: str) -> str:
    """`text` with `old` replaced. Raises QuickstartError unless it occurs exactly once."""
    if text.count(old) != 1:
        raise QuickstartError(
            f"{where}: has {old.strip()!r} {text.count(old)} times, not once; the "
            "quickstart has changed: mend OURS in lab/flower/quickstart.py"
        )
    return text.replace(old, new)


def with_mnist(app: Path) -> None:
    """Changes a copy of the app: its data, and a count of its bytes."""
    task = app / PACKAGE / "task.py"
    own = "from lab.flower.mnist import load_centralized_dataset, load_data  # noqa: E402, F811\n"
    task.write_text(_FOREIGN.sub("", task.read_text()) + "\n\n" + own)
    server = app / PACKAGE / "server_app.py"
    start = "    # Start strategy,"
    count = f"    from lab.flower.mnist import counted\n\n    grid = counted(grid)\n\n{start}"
    server.write_text(replaced(server.read_text(), start, count, "server_app.py"))


def with_lines(app: Path, **codecs: str) -> str:
    """Adds our lines to a copy; returns the diff."""
    said = []
    for name, changes in OURS.items():
        file = app / PACKAGE / name
        before = after = file.read_text()
        for old, new in changes:
            after = replaced(after, old, new.format(**codecs), name)
        file.write_text(after)
        lines = (before.splitlines(True), after.splitlines(True))
        said += difflib.unified_diff(*lines, name, name, n=0)
    return "".join(said)


def run_app(app: Path, given: argparse.Namespace) -> dict:
    """Accuracies by round, bytes, and what the server counted, of one simulation."""
    environment = {
        **os.environ,
        "APP": str(app),
        "CONFIG": f"batch-size=32 learning-rate={given.lr}",
        "PYTHON": str(given.python.absolute()),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "LAB_EXAMPLES": str(given.examples),
        "LIMIT": str(given.limit),
    }
    script = ROOT / "examples" / "flower" / "simulate.sh"
    told = subprocess.run(
        [script, str(given.clients), str(given.rounds)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=app,
    )
    text = told.stdout + told.stderr
    app.with_suffix(".log").write_text(text)
    sent = re.findall(r"array bytes: down (\d+), up (\d+)", text)
    accuracy = accuracies(text)
    if told.returncode or not sent or len(accuracy) <= given.rounds:
        raise QuickstartError(f"the run of {app} failed; {app.with_suffix('.log')} says why")
    down, up = map(int, sent[-1])
    return {"down": down, "up": up, "accuracy": accuracy}


def accuracies(text: str) -> list[float]:
    """The accuracies of the server's test after each round, from 0, out of Flower's summary."""
    section = text.rpartition("ServerApp-side Evaluate Metrics")[2]
    return [float(found) for found in re.findall(r"'accuracy': '?([0-9.e+-]+)", section)]


def table_text(plain: dict, ours: dict) -> str:
    """The comparison, in Markdown."""
    lines = [
        "| app | bytes down | bytes up | accuracy after each round |",
        "| --- | --- | --- | --- |",
    ]
    for name, found in (("as it is", plain), ("with our lines", ours)):
        shown = ", ".join(f"{100 * value:.1f} %" for value in found["accuracy"][1:])
        lines.append(f"| {name} | {found['down']:,} | {found['up']:,} | {shown} |")
    down, up = (plain[way] / ours[way] for way in ("down", "up"))
    lines.append(f"| times smaller | {down:.1f} | {up:.1f} | |")
    return "\n".join(lines)


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.flower.quickstart", __doc__)
    parser.add_argument("--app", type=Path, required=True, help="folder of the quickstart")
    parser.add_argument("--python", type=Path, default=ROOT / "build/flower-venv/bin/python")
    parser.add_argument("--clients", type=int, default=10, help="default 10")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--examples", type=int, default=6000, help="of a client at most")
    parser.add_argument("--lr", type=float, default=0.1, help="the quickstart's: 0.1")
    parser.add_argument("--up", default="sbc:p=1%", help="codec of the clients")
    parser.add_argument("--down", default="3lc", help="codec of the way down")
    parser.add_argument("--limit", type=int, default=1800, help="seconds for one run")
    parser.add_argument("--out", type=Path, default=Path("out/flower-quickstart"))
    return parser.parse_args(argv)


def run(given: argparse.Namespace) -> None:
    """Both copies, the diff and the table."""
    if not (given.app / PACKAGE / "client_app.py").is_file():
        raise QuickstartError(
            f"{given.app} has no {PACKAGE}/client_app.py; pass --app quickstart-pytorch"
        )
    found, diff = {}, ""
    for name in ("plain", "compressed"):
        copy = given.out.absolute() / name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(given.app, copy)
        with_mnist(copy)
        if name == "compressed":
            diff = with_lines(copy, up=given.up, down=given.down)
        print(f"{name}: {given.clients} clients, {given.rounds} rounds", flush=True)
        found[name] = run_app(copy, given)
    print(diff)
    print(table_text(found["plain"], found["compressed"]))


main = main_of("lab.flower.quickstart", parse, run, QuickstartError)


if __name__ == "__main__":
    sys.exit(main())
