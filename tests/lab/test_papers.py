"""lab.papers: its declarations, and a run of every kind, in small."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from planted_images import write_cifar10, write_image_set

from lab.papers import __main__ as program
from lab.papers.declaration import Paper, Run
from lab.papers.fastsgd import trainings

workloads = pytest.importorskip("lab.papers.workloads")
PAPERS = {name: program.load_paper(name) for name in program.PAPERS}
OVER_LINKS = ("link", "epochs", "convergence")  # kinds that need namespaces


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of all data sets, tiny."""
    (tmp_path / "mnist").mkdir()
    write_image_set(tmp_path / "mnist")
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    words = "the cat sat on a mat and saw the dog\n"
    for name, text in (
        ("ptb/ptb.train.txt", 40 * words),
        ("ptb/ptb.valid.txt", 5 * words),
        ("shakespeare/input.txt", 60 * words),
        ("sst2/stsa.binary.train", 20 * f"1 {words}0 {words}"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path))
    monkeypatch.setattr(workloads, "DEBIAN_FASHION_MNIST", tmp_path / "mnist")
    caches = (*workloads._IMAGES.values(), workloads._text)
    for cache in caches:
        cache.cache_clear()
    yield tmp_path
    for cache in caches:
        cache.cache_clear()


def measured(paper: Paper, run: Run) -> dict:
    scale = paper.scales[0].settings[run.kind]
    metrics = paper.kinds[run.kind].measure(scale, run.settings, 1)
    return json.loads(json.dumps(metrics))


def check_numbers(paper: Paper, run: Run, metrics: dict) -> None:
    """Every number and curve of the tables that shows this run has a finite metric."""
    shown = 0
    for table in paper.tables:
        for _, row in table.rows:
            for number in row:
                if number is not None and number.run == run.key:
                    value = metrics.get(number.metric)
                    assert value is not None or number.metric.startswith("pays_below")
                    assert value is None or isinstance(value, list) or math.isfinite(value)
                    shown += 1
        curves = [curve for plot in table.plots for curve in plot.curves if curve.run == run.key]
        assert all(len(point) >= 2 for curve in curves for point in metrics[curve.metric])
    assert shown > 0, f"no table shows {run.key}"


@pytest.mark.parametrize("name", PAPERS)
def test_declaration_is_whole(name: str):
    paper = PAPERS[name]
    keys = [run.key for run in paper.runs]
    assert len(set(keys)) == len(keys)
    for table in paper.tables:
        assert set(table.run_keys()) <= set(keys), table.number
        for label, row in table.rows:
            assert len(row) == len(table.head) - 1, (table.number, label)
    shown = {key for table in paper.tables for key in table.run_keys()}
    assert shown == set(keys), "a run that no table shows"
    for scale in paper.scales:
        for run in paper.runs:
            assert paper.kinds[run.kind].words(scale.settings[run.kind])


FIRST = [
    pytest.param(
        paper, run, id=f"{name}-{kind}", marks=[pytest.mark.thorough] if kind == "plan" else []
    )
    for name, paper in PAPERS.items()
    for kind in paper.kinds
    for run in [next(run for run in paper.runs if run.kind == kind)]
    if kind not in OVER_LINKS
]


@pytest.mark.parametrize(("paper", "run"), FIRST)
def test_a_run_of_each_kind(paper: Paper, run: Run, data: Path):
    check_numbers(paper, run, measured(paper, run))


LAST_OVER_LINKS = [
    pytest.param(paper, run, id=f"{name}-{run.cell}")
    for name, paper in PAPERS.items()
    for kind in paper.kinds
    for run in [run for run in paper.runs if run.kind == kind][-1:]
    if kind in OVER_LINKS
]


@pytest.mark.parametrize(("paper", "run"), LAST_OVER_LINKS)
def test_a_run_of_each_kind_over_links(paper: Paper, run: Run, namespaces):
    check_numbers(paper, run, measured(paper, run))


def run_of(name: str, table: str, cell: str) -> tuple[Paper, Run]:
    paper = PAPERS[name]
    (run,) = [run for run in paper.runs if run.key == (table, cell)]
    return paper, run


def test_threelc_counts_both_directions(data: Path):
    cells = ("32-bit float", "2 local steps", "3LC (s=1.75)")
    plain, every, packed = (measured(*run_of("threelc", "1", cell)) for cell in cells)
    assert 32 < plain["bits"] < 32.5
    assert every["bits"] == pytest.approx(plain["bits"] / 2)
    assert packed["push_bits"] < 1 and packed["pull_bits"] < 1
    assert len(plain["push_curve"]) == len(plain["loss_curve"]) > 3


def sgd_losses(scale: dict) -> list[float]:
    """Of the batches that all workers draw with seed 1, trained on without a server."""
    import torch

    workload = workloads.make_workload(
        scale["network"], workers=scale["workers"], batch=scale["batch"], seed=1, test=10
    )
    optimizer = torch.optim.SGD(
        workload.network.parameters(), lr=scale["lr"], momentum=0.9, weight_decay=1e-4
    )
    chance = [np.random.default_rng([1, rank]) for rank in range(scale["workers"])]
    losses = []
    for step in range(scale["steps"]):
        falling = 0.505 + 0.495 * math.cos(math.pi * step / scale["steps"])
        optimizer.param_groups[0]["lr"] = scale["lr"] * falling
        optimizer.zero_grad()
        batches = [workload.draw(rank, chance[rank]) for rank in range(scale["workers"])]
        loss = sum(workload.loss(workload.network(x), y) for x, y in batches) / len(batches)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_without_loss_the_server_is_plain_sgd(data: Path):
    """With and without residuals in the pull, and by another lossless codec."""
    paper, run = run_of("threelc", "1", "32-bit float")
    kind, scale = paper.kinds[run.kind], paper.scales[0].settings[run.kind]
    losses = sgd_losses(scale)
    assert losses[-1] < losses[0]
    for changes in ({}, {"spec": "zstd"}, {"feedback": False}):
        found = kind.measure(scale, {**run.settings, **changes}, 1)["loss_curve"]
        assert [loss for _, loss in found] == pytest.approx(losses, rel=1e-4), changes


def test_sbc_counts_frames(data: Path):
    baseline = measured(*run_of("sbc", "2", "LeNet5, MNIST, baseline"))
    assert 0.99 < baseline["smaller"] <= 1.0
    one = measured(*run_of("sbc", "2", "LeNet5, MNIST, SBC (1)"))
    assert one["smaller"] > 1000
    two = measured(*run_of("sbc", "3", "100 clients, two classes, SBC (2)"))
    assert two["smaller"] > 300


def test_two_classes_a_client_and_every_example_once():
    labels = np.repeat(np.arange(10), 40)
    shares = workloads.shares(labels, 20, "two", 1)
    assert sorted(np.concatenate(shares)) == list(range(400))
    assert all(len(share) == 20 and len(set(labels[share])) <= 2 for share in shares)


def test_gcomp_changes_less_than_a_cut(data: Path):
    paper, run = run_of("gcomp", "fig9", "ResNet-20, CIFAR-10, SGD")
    scale = {**paper.scales[0].settings[run.kind], "steps": 60}
    cell = {**run.settings, "workload": "mlp/mnist", "rates": {"SGD": 0.5}}
    found = paper.kinds[run.kind].measure(scale, cell, 1)
    assert 5 < found["share"] < 90
    assert 0 < found["gcomp_variance"] < found["cut_variance"] < found["skip_variance"]
    assert found["paper_share"] > found["share"], "four levels cut less than eight"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody"], "invalid choice"),
        (["page"], "`page PAPER`"),
        (["sbc", "gcomp"], "`page PAPER`"),
        (["sbc", "--table", "9"], "sbc has no table 9; it has 2, 3, fig3"),
        (["sbc", "--scale", "huge"], "sbc has no scale huge"),
        (["sbc", "--seeds", "0"], "--seeds is at least 1"),
    ],
)
def test_wrong_words_are_refused_at_once(words: list[str], said: str, capsys):
    with pytest.raises(SystemExit, match="2"):
        program.main(words)
    assert said in capsys.readouterr().err


def test_help_names_the_papers(capsys):
    with pytest.raises(SystemExit, match="0"):
        program.main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in PAPERS) and "--scale" in shown


def test_a_missing_page_is_one_line(tmp_path: Path, capsys):
    assert program.main(["page", "sbc", "--out", str(tmp_path)]) == 1
    assert "there is no" in capsys.readouterr().err


def test_fastsgd_trains_each_method_at_its_best_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {0.02: 0.3, 0.05: 0.1, 0.1: 0.2}
    seen: list[float] = []

    def train(file: Path, link: str, workers: int, options: tuple) -> dict:
        rate = options[options.index("--lr") + 1]
        seen.append(rate)
        epoch = {f"{part}_seconds": 0.0 for part in trainings._PARTS}
        epoch |= {"seconds": 1.0, "test_loss": losses[rate], "bytes_sent": 1, "bytes_per_step": 1}
        return {"epochs": [epoch], "final": {"seconds": 1.0}}

    monkeypatch.setattr(trainings, "_train", train)
    monkeypatch.setattr(trainings, "data_file", lambda *_: Path("rows"))
    fastsgd = PAPERS["fastsgd"]
    scale = next(each for each in fastsgd.scales if each.name == "hour").settings["convergence"]
    run = next(run for run in fastsgd.runs if run.kind == "convergence")
    metrics = trainings.measure(scale, run.settings, 1)
    assert (metrics["rate"], metrics["loss"]) == (0.05, 0.1)
    assert seen == list(losses)
