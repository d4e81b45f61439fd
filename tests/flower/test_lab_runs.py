"""The lab's runs with Flower: the quickstart's two lines, a crowd with hostile clients, and what is
killed, in small."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "ray", reason="Flower is not installed whole: pip install -r requirements-flower.txt"
)

import numpy as np  # noqa: E402

from lab.flower import (
    crowd,  # noqa: E402
    killed,  # noqa: E402
    mnist,  # noqa: E402
    quickstart,  # noqa: E402
)

QUICKSTART = {
    "client_app.py": "import torch\n\n# The client\napp = ClientApp()\n",
    "server_app.py": "import torch\n\n    strategy = FedAvg()\n\n    # Start strategy, run\n",
    "task.py": "import torch\nfrom datasets import load_dataset\nfrom torchvision import "
    "transforms\n\npytorch_transforms = Compose([])\n\n\ndef test():\n    return 1\n",
}


@pytest.fixture
def app(tmp_path) -> Path:
    """A folder that is laid out as the quickstart."""
    package = tmp_path / "app" / quickstart.PACKAGE
    package.mkdir(parents=True)
    for name, text in QUICKSTART.items():
        (package / name).write_text(text)
    return tmp_path / "app"


def test_the_quickstart_gets_mnist_and_two_lines(app):
    quickstart.with_mnist(app)
    task = (app / quickstart.PACKAGE / "task.py").read_text()
    assert "datasets" not in task and "torchvision" not in task and "def test()" in task
    assert "from lab.flower.mnist import load_centralized_dataset, load_data" in task
    diff = quickstart.with_lines(app, up="sbc:p=1%", down="3lc")
    added = re.findall(r"^\+(?!\+\+)(.*\S.*)$", diff, re.M)
    assert added == [
        "import deltawire.flower",
        'app = ClientApp(mods=[deltawire.flower.mod("sbc:p=1%")])',
        "import deltawire.flower",
        '    strategy = deltawire.flower.Compressed(strategy, down="3lc")',
    ]
    assert re.findall(r"^-(?!--)(.*\S.*)$", diff, re.M) == ["app = ClientApp()"]


def test_an_app_that_has_changed_is_named(app, capsys):
    (app / quickstart.PACKAGE / "server_app.py").write_text("nothing of the kind\n")
    out = str(app.parent / "out")
    assert quickstart.main(["--app", str(app), "--out", out]) == 1
    assert "server_app.py: has '# Start strategy,' 0 times" in capsys.readouterr().err
    assert quickstart.main(["--app", str(app / "none"), "--out", out]) == 1
    assert "pass --app quickstart-pytorch" in capsys.readouterr().err


def test_the_quickstarts_figures_are_read():
    summary = (
        "  \tServerApp-side Evaluate Metrics:\n  { 0: {'accuracy': '9.8e-02', 'loss': '2.3'},\n"
    )
    summary += "    1: {'accuracy': '9.1e-01', 'loss': '0.3'}}\n"
    assert quickstart.accuracies("'accuracy': '0.5'" + summary) == [0.098, 0.91]
    found = {"down": 100, "up": 50, "accuracy": [0.1, 0.9]}
    assert "| times smaller | 2.0 | 5.0 | |" in quickstart.table_text(
        {"down": 200, "up": 250, "accuracy": [0.1, 0.9]}, found
    )


def write_mnist(folder: Path) -> None:
    """Idx files of 200 and 50 images of noise."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    for prefix, count in (("train", 200), ("t10k", 50)):
        images = draw.integers(0, 256, (count, 28, 28), np.uint8).tobytes()
        head = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (count, 28, 28))
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(head + images)
        labels = (
            bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + bytes(i % 10 for i in range(count))
        )
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(labels)


def test_clients_of_the_quickstart_have_examples_of_their_own(tmp_path, monkeypatch):
    write_mnist(tmp_path / "mnist")
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path))
    monkeypatch.setattr(mnist, "_sets", None)
    train, test = mnist.load_data(1, 4, 8)
    assert (len(train.dataset), len(test.dataset)) == (40, 10)
    batch = next(iter(train))
    assert batch["img"].shape == (8, 3, 32, 32) and batch["label"].shape == (8,)
    assert float(batch["img"].min()) == -1.0
    assert len(mnist.load_centralized_dataset().dataset) == 50


@pytest.mark.timeout(420)
def test_a_small_crowd_with_every_fault(tmp_path):
    """A process of its own: Ray and Flower's simulation leave threads behind."""
    write_mnist(tmp_path / "mnist")
    options = ["--clients", "10", "--rounds", "1", "--hostile", "--pace", "0", "--dead", "20"]
    said = subprocess.run(
        [sys.executable, "-m", "lab.flower.crowd", *options, "--data", str(tmp_path / "mnist")],
        env={**os.environ, "PYTHONPATH": str(quickstart.ROOT)},
        cwd=quickstart.ROOT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    text = said.stdout + said.stderr
    assert said.returncode == 0, text
    dead = sum(crowd.is_dead(i, crowd.parse(["--dead", "20"])) for i in range(10))
    assert dead == 2
    # Partitions 4 to 9 are hostile; of the dead, 0 and 5, one would have sent garbage.
    assert "round 0 train: 3 of 10 clients; 5 refused; 2 silent" in text, text
    for words in (
        "not finite",
        "layout_hash",
        "it is of round -1",
        "times the median",
        "params_hash",
    ):
        assert words in text


def test_what_is_started_is_ended(tmp_path):
    processes = killed.Processes(tmp_path)
    processes.start(
        "sleeper", sys.executable, "-c", "print('Receiving: train', flush=True); input()"
    )
    killed.until(
        lambda: processes.text("sleeper") or processes.ended("sleeper"), 60, "it said nothing"
    )
    assert ("sleeper", "Receiving: train") in processes.news() and not processes.news()
    processes.stop()
    assert processes.ended("sleeper")
    with pytest.raises(killed.LabError, match="never within 0 s"):
        killed.until(lambda: False, 0, "never")
