"""Training in one process: a codec's errors are fed back, and the printed lines say so."""

from pathlib import Path

import numpy as np
import pytest
import torch
from planted_images import write_cifar10

from lab.probes import single_process


@pytest.mark.parametrize("with_residual", [True, False])
def test_what_was_lost_comes_later(with_residual: bool) -> None:
    coder = single_process.Coder("3lc", with_residual)
    gradient = np.linspace(-1, 1, 300, dtype=np.float32)
    sums = sum(coder.through([gradient])[0].astype(np.float64) for _ in range(20))
    error = np.abs(sums - 20 * gradient).max()
    # A residual stays below the largest value; without one the same error is made 20 times.
    assert error < 1.5 if with_residual else error > 5
    assert coder.elements == 20 * 300
    assert 0 < coder.bits < 32 * coder.elements


def test_small_tensors_pass_as_they_are() -> None:
    gradient = np.linspace(-1, 1, single_process.MIN_ELEMENTS - 1, dtype=np.float32)
    (seen,) = single_process.Coder("3lc", True).through([gradient])
    assert np.array_equal(seen, gradient)


def test_each_step_and_coder_draws_its_own_numbers() -> None:
    # With the same places in every step, most of a gradient would never be sent.
    ones = np.ones(1000, np.float32)
    coders = [single_process.Coder("randomk:k=10%", False, seed) for seed in (0, 1)]
    places = [np.flatnonzero(coder.through([ones])[0]) for _ in range(2) for coder in coders]
    assert len({each.tobytes() for each in places}) == 4


def test_a_line_for_each_codec(image_folder: Path, capsys: pytest.CaptureFixture) -> None:
    options = ["--data", str(image_folder), "--steps", "2", "--ranks", "2", "--batch", "8"]
    assert single_process.main(["fp32", "3lc", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["fp32", "3lc"]
    bits = [float(line.split()[-2]) for line in lines]
    assert bits[0] >= 32 > bits[1]


def test_the_optimizer_is_the_one_asked_for(image_folder: Path) -> None:
    network = torch.nn.Linear(2, 2)
    given = single_process.parse(["fp32", "--lr", "0.5", "--momentum", "0.25"])
    (group,) = single_process.make_optimizer(network, given).param_groups
    assert (group["lr"], group["momentum"]) == (0.5, 0.25)
    asked = ["--optimizer", "adamw", "--betas", "0", "0.75", "--lr", "0.5"]
    (group,) = single_process.make_optimizer(
        network, single_process.parse(["fp32", *asked])
    ).param_groups
    assert (group["lr"], group["betas"]) == (0.5, (0.0, 0.75))
    options = ["--data", str(image_folder), "--steps", "2", "--ranks", "2", "--batch", "8"]
    assert single_process.main(["fp32", *asked, *options]) == 0


def test_late_codecs_may_be_stepped_as_register_does(
    image_folder: Path, capsys: pytest.CaptureFixture
) -> None:
    few = ["--data", str(image_folder), "--steps", "4", "--ranks", "2", "--batch", "8"]
    asked = [*few, "--optimizer", "adamw", "--residual", "--seeds", "1", "2"]

    def weights_after(*more: str) -> bytes:
        kept = []

        def keep(network: torch.nn.Module, *_: object) -> torch.optim.Optimizer:
            kept.append(network)
            return torch.optim.AdamW(network.parameters(), lr=0.01)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(single_process, "make_optimizer", keep)
            assert single_process.main(["signsgd", *asked, *more]) == 0
        return b"".join(p.detach().numpy().tobytes() for n in kept for p in n.parameters())

    ways = ([], ["--rule"], ["--direct"], ["--fall"], ["--bf16"])
    assert len({weights_after(*way) for way in ways}) == len(ways), "an option does nothing"
    line = capsys.readouterr().out.splitlines()[0]
    first, second, median = map(float, line.split()[1:4])
    assert median == pytest.approx((first + second) / 2, abs=0.1)


def test_the_rate_falls_over_the_last_steps() -> None:
    given = single_process.parse(["fp32", "--fall", "--steps", "100", "--lr", "0.5"])
    rates = [single_process.rate_at(step, given) for step in (0, 59, 80, 99)]
    assert rates == pytest.approx([0.5, 0.5, 0.25, 0.0125])


def test_an_error_is_one_line(image_folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert single_process.main(["fp32", "--data", str(image_folder)]) == 1
    assert "take a smaller batch" in capsys.readouterr().err
    few = ["--data", str(image_folder), "--batch", "8"]
    assert single_process.main(["4lc", *few]) == 1
    assert "4lc" in capsys.readouterr().err
    assert single_process.main(["fp32", "--data", str(image_folder / "none")]) == 1


def test_other_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_cifar10(tmp_path)
    few = ["fp32", "--steps=1", "--ranks=2", "--batch=2"]
    given = single_process.parse([*few, "--network=resnet20", f"--data={folder}"])
    loss, right, bits = single_process.train("fp32", given)
    assert loss > 0 and 0 <= right <= 1 and bits >= 32
    (tmp_path / "wikitext-2").mkdir()
    words = " ".join(f"word{number % 97}" for number in range(2000))
    (tmp_path / "wikitext-2" / "wiki.valid.tokens").write_text(words)
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path))
    task = single_process.make_task(single_process.parse([*few, "--network=small-lstm"]))
    first, second = (each(0).item() for each in task.losses)
    assert first != second, "ranks have their own batches"
    loss, right = task.measure()
    assert loss == pytest.approx(np.log(600), abs=0.1) and right < 0.1
    large = single_process.make_task(single_process.parse([*few, "--network=large-lstm"]))
    assert large.measure()[0] == pytest.approx(np.log(10_000), abs=0.1)
