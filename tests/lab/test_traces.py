"""The recordings: their data, networks and command, on a folder of made-up data."""

import lzma
import os
from pathlib import Path

import numpy as np
import pytest
from planted_images import write_cifar10

torch = pytest.importorskip("torch")

import deltawire  # noqa: E402

from lab.data import texts  # noqa: E402
from lab.data.images import DataError, data_folder  # noqa: E402
from lab.data.sparse_rows import load_sparse_rows  # noqa: E402
from lab.models import trainings  # noqa: E402
from lab.models.networks import CharacterTransformer  # noqa: E402
from lab.traces import __main__ as command  # noqa: E402

TEXT = "the cat saw the dog\nthe dog saw a cat\n" * 40
ROWS = "1 1:3 5:4\n15 2:1\n20\n2 130107:7 \n"


@pytest.fixture
def folder(tmp_path: Path, image_folder: Path, monkeypatch) -> Path:
    """Data of every kind, some of it compressed."""
    root = tmp_path / "sets"
    for name in ("cifar-10-batches-bin", "wikitext-2", "shakespeare", "libsvm"):
        (root / name).mkdir(parents=True)
    write_cifar10(root / "cifar-10-batches-bin")
    (root / "wikitext-2" / "wiki.valid.tokens").write_text(TEXT)
    (root / "shakespeare" / "input.txt").write_text(TEXT)
    rows = lzma.compress(ROWS.encode())
    (root / "libsvm" / "20news-bydate.train.libsvm.xz").write_bytes(rows)
    monkeypatch.setenv("DELTAWIRE_DATA", str(root))
    monkeypatch.setattr(trainings, "DEBIAN_FASHION_MNIST", image_folder)
    return root


@pytest.fixture
def one_thread():
    """Restores the number of threads, which the command changes, for later tests."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.mark.thorough
def test_every_training_leaves_a_trace_and_the_same_one_again(folder, tmp_path, one_thread, capsys):
    for out in ("first", "second"):
        arguments = ["all", "--size", "small", "--record", "1-2,4", "--out", str(tmp_path / out)]
        assert command.main(arguments) == 0
    shown = capsys.readouterr()
    assert "seed 1" in shown.out
    names = sorted(os.listdir(tmp_path / "first"))
    assert names == sorted(
        f"{name}-{kind}" for name in trainings.TRAININGS for kind in ("sgd", "adam")
    )
    for name in names:
        trace = deltawire.read_trace(tmp_path / "first" / name)
        again = deltawire.read_trace(tmp_path / "second" / name)
        assert trace.step_numbers == (1, 2, 4)
        assert "4 steps, seed 1" in trace.model
        assert trace.optimizer.startswith("SGD" if name.endswith("sgd") else ("Adam", "SparseAdam"))
        sparse = name.startswith("logistic")
        assert [tensor.pairs for tensor in trace.tensors] == [sparse] * len(trace.tensors)
        for one, other in zip(trace, again, strict=True):
            for gradient, twin in zip(one.gradients, other.gradients, strict=True):
                assert gradient.values.any()
                assert np.isfinite(gradient.values).all()
                assert gradient.values.tobytes() == twin.values.tobytes()
                assert (gradient.significance is None) == (name == "logistic-adam")
    steps = [deltawire.read_trace(tmp_path / "first" / "lstm-sgd").load(n) for n in (1, 2)]
    assert steps[0].gradients[0].values.tobytes() != steps[1].gradients[0].values.tobytes()


def test_one_optimizer_may_be_asked_for(folder, tmp_path, one_thread):
    arguments = ["logistic", "--optimizers", "sgd", "--record", "1"]
    assert command.main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert os.listdir(tmp_path / "out") == ["logistic-sgd"]
    (gradient,) = deltawire.read_trace(tmp_path / "out" / "logistic-sgd").load(1).gradients
    assert set(gradient.keys) <= {0, 1, 4, 130106}
    assert command.main([*arguments, "--out", str(tmp_path / "out")]) == 1  # not empty any more


def test_steps_are_lists_and_ranges():
    assert command.step_numbers("5,100-102") == {5, 100, 101, 102}
    for text in ("", "0", "a", "5-", "9-7"):
        with pytest.raises(ValueError):
            command.step_numbers(text)


def test_words_beyond_the_vocabulary_are_one(folder):
    words = texts.read_words(folder, 4)
    # Most frequent: the (120), <eos>, cat, dog, saw (80 each); those that are kept by alphabet.
    assert words[:10].tolist() == [2, 1, 3, 2, 3, 0, 2, 3, 3, 3]
    assert len(words) == 80 * 6
    full = texts.read_words(folder, 100)
    assert full[:6].tolist() == [5, 2, 4, 5, 3, 0]


def test_characters_are_numbered(folder):
    numbers, kinds = texts.read_characters(folder)
    assert kinds == len(set(TEXT))
    assert "".join(sorted(set(TEXT))[i] for i in numbers) == TEXT


def read_rows(folder):
    return load_sparse_rows(folder / "libsvm" / "20news-bydate.train.libsvm")


def test_rows_have_length_one(folder):
    rows = read_rows(folder)
    assert rows.labels.tolist() == [-1, 1, 1, -1]  # the lower half of the labels, and the upper
    assert rows.begin.tolist() == [0, 2, 3, 3, 4]
    assert rows.columns.tolist() == [0, 4, 1, 130106]
    assert rows.values.tolist() == pytest.approx([0.6, 0.8, 1, 1])


def test_missing_and_damaged_data_is_named(folder, monkeypatch):
    (folder / "shakespeare" / "input.txt").write_bytes(b"\xff")
    (folder / "libsvm" / "20news-bydate.train.libsvm.xz").write_bytes(b"no xz")
    (folder / "wikitext-2" / "wiki.valid.tokens").unlink()
    for read, name in (
        (texts.read_characters, "input.txt"),
        (read_rows, "20news"),
        (lambda path: texts.read_words(path, 10), "wiki.valid"),
    ):
        with pytest.raises(DataError, match=name):
            read(folder)
    (folder / "libsvm" / "20news-bydate.train.libsvm.xz").write_bytes(lzma.compress(b"1 5\n"))
    with pytest.raises(DataError, match="line 1"):
        read_rows(folder)
    assert command.main(["lstm", "--out", str(folder / "out")]) == 1
    monkeypatch.delenv("DELTAWIRE_DATA")
    with pytest.raises(DataError, match="DELTAWIRE_DATA"):
        data_folder()


def test_the_transformer_does_not_see_what_comes():
    torch.manual_seed(0)
    network = CharacterTransformer(10, 8, 2)
    text = torch.randint(10, (1, 12))
    other = text.clone()
    other[0, 7] = (text[0, 7] + 1) % 10
    first, second = network(text), network(other)
    assert torch.equal(first[:, :7], second[:, :7])
    assert not torch.allclose(first[:, 7:], second[:, 7:])
