"""The corpus and the ranking on it, in small; and the page of the repository."""

import json
import subprocess
from pathlib import Path

import deltawire
import numpy as np
import pytest
from planted_images import write_image_set

torch = pytest.importorskip("torch")

from lab.command.paths import DELTAWIRE  # noqa: E402
from lab.models import trainings  # noqa: E402
from lab.traces import corpus, measure, methods, rank, rivals  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
GROUPS_OF_THE_PROCESS: list = []  # never freed
PHASES = corpus.Phases(early=2, middle=4, late=8, row=3, local=2)
RECIPES = (
    corpus.Recipe("lenet5", "sgd", row=True, changes=True),
    corpus.Recipe("charlstm", "adam"),
    corpus.Recipe("logistic", "sgd", row=True),
    corpus.Recipe("lenet5", "sgd", dtype="bfloat16"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A corpus of made-up data."""
    root = tmp_path_factory.mktemp("corpus")
    images, out = root / "images", root / "corpus"
    images.mkdir()
    write_image_set(images)
    for name, text in (
        ("shakespeare/input.txt", 40 * "the cat saw the dog\nthe dog saw a cat\n"),
        ("libsvm/20news-bydate.train.libsvm", 20 * "1 1:3 5:4\n15 2:1 7:2\n20 9:1\n"),
    ):
        (root / name).parent.mkdir()
        (root / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_DATA", str(root))
        patch.setattr(trainings, "DEBIAN_FASHION_MNIST", images)
        assert corpus.write(out, RECIPES, PHASES) > 100_000
    return out


@pytest.fixture(scope="module")
def small(folder) -> measure.Corpus:
    """The same, read."""
    return measure.Corpus(folder)


def stream(small: measure.Corpus, name: str) -> measure.Stream:
    """A stream by its folder."""
    return next(each for each in small.streams if each.folder == name)


def test_it_has_every_content(small):
    assert {each.folder: each.group for each in small.streams} == {
        "lenet5-sgd": "gradients",
        "lenet5-sgd-row": "row",
        "lenet5-sgd-changes": "changes",
        "charlstm-adam": "gradients",
        "logistic-sgd": "sparse gradients",
        "logistic-sgd-row": "sparse row",
        "lenet5-sgd-bf16": "bfloat16",
    }
    for each in small.streams:
        steps = list(small.steps(each))
        assert len(steps) == 3
        for step in steps:
            assert sum(tensor.values.size for tensor in step) == each.count
            assert all(np.isfinite(tensor.values).all() for tensor in step)
        seen = all(tensor.significance is not None for tensor in steps[0])
        assert seen == (each.group == "gradients")


def test_changes_are_what_the_optimizer_did(folder):
    """Without momentum a change is the sum of the gradients times the rate; here there is some, so
    that the change over steps 3 and 4 and the gradient of step 4 only point away from each
    other."""
    changes = deltawire.read_trace(folder / "lenet5-sgd-changes")
    gradients = deltawire.read_trace(folder / "lenet5-sgd")
    assert changes.step_numbers == gradients.step_numbers == (2, 4, 8)
    for change, gradient in zip(
        changes.load(2).gradients, gradients.load(2).gradients, strict=True
    ):
        cosine = measure._cosine(change.values.ravel(), gradient.values.ravel())
        assert cosine < -0.5


def test_rows_of_bfloat16_are_of_16_bits(small):
    for step in small.steps(stream(small, "lenet5-sgd-bf16")):
        for tensor in step:
            raw = methods.raw_bytes(tensor)
            assert len(raw) == 2 * tensor.values.size
            assert methods.from_raw(raw, tensor.layout).tobytes() == tensor.values.tobytes()


def test_figures_are_those_of_deltawire_compare(folder, small, tmp_path):
    """Another implementation of the same definitions, in C++."""
    out, specs = tmp_path / "figures.json", ("3lc", "sbc", "bf16", "gcomp")
    command = [DELTAWIRE, "compare", "--input", folder / "charlstm-adam", "--quick"]
    subprocess.run([*command, "--json", out, "--codecs", *specs], check=True, capture_output=True)
    rows = {row["method"]: row for row in json.loads(out.read_text())["rows"]}
    print(rows)
    for spec in specs:
        found = measure.measure(methods.entry_of(spec), small, stream(small, "charlstm-adam"))
        theirs = rows[spec]
        near = 0.02 if spec == "gcomp" else 1e-5  # whose frames hold a tensor each
        assert found["bits"] == pytest.approx(theirs["bits_per_value"], rel=near)


def test_a_lossless_method_that_loses_is_refused(small):
    entry = methods.Entry("liar", "nobody", lambda: methods.Messages("bf16"), lossless=True)
    with pytest.raises(measure.CorpusError, match="liar is lossless"):
        measure.measure(entry, small, stream(small, "lenet5-sgd"))


def test_what_feedback_delivers(small):
    """A method that sends half of everything delivers a half; with a residual nearly all."""

    class Half:
        """Sends half of what it has, and keeps the rest or not."""

        def __init__(self, keeps: bool) -> None:
            self._keeps, self._left = keeps, 0.0

        def encode(self, tensors):
            """All values, halved."""
            x = np.concatenate([each.values.ravel() for each in tensors]) + self._left
            self._left = x / 2 if self._keeps else 0.0
            return (x / 2).astype(np.float32).tobytes()

        def decode(self, message, layouts):
            """As they came."""
            ends = np.cumsum([each.count for each in layouts])[:-1]
            parts = np.split(np.frombuffer(message, np.float32), ends)
            return [part.reshape(each.shape) for part, each in zip(parts, layouts, strict=True)]

    def delivered(keeps: bool) -> dict:
        entry = methods.Entry("half", "nobody", lambda: Half(keeps))
        return measure.measure(entry, small, stream(small, "lenet5-sgd-row"))

    lost, kept = delivered(False), delivered(True)
    assert lost["bits"] == 32
    assert lost["error"] == pytest.approx(0.5)
    assert lost["delivered"] == pytest.approx(0.5)
    assert 0.55 < kept["delivered"] < 0.9
    assert kept["error"] < 0.45


def test_powersgd_is_the_hook(small):
    """Three steps of PyTorch's own hook, on a group of one rank, give the same values. The hook's
    callbacks end in Gloo's threads: with the last reference to the group there, its destructor
    would join its own thread, and abort the process."""
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hooks

    class Bucket:
        """What the hook reads of a bucket."""

        def __init__(self, arrays):
            self._flat = torch.cat([torch.from_numpy(each).flatten() for each in arrays])
            parts = self._flat.split([each.size for each in arrays])
            self._parts = [p.view(a.shape) for p, a in zip(parts, arrays, strict=True)]
            self.buffer, self.gradients = (lambda: self._flat), (lambda: self._parts)
            self.index, self.is_last = (lambda: 0), (lambda: True)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    GROUPS_OF_THE_PROCESS.append(dist.group.WORLD)
    try:
        state = hooks.PowerSGDState(None, 2, start_powerSGD_iter=2)
        state.iter = 2
        ours = rivals.PowerSGD(2)
        for step in small.steps(stream(small, "lenet5-sgd-row")):
            bucket = Bucket([each.values for each in step])
            hooks.powerSGD_hook(state, bucket).wait()
            arrived = ours.decode(ours.encode(step), [each.layout for each in step])
            for theirs, array in zip(bucket.gradients(), arrived, strict=True):
                scale = max(1e-12, float(theirs.abs().max()))
                np.testing.assert_allclose(array / scale, theirs.numpy() / scale, atol=1e-4)
    finally:
        dist.destroy_process_group()


def test_ranking_goes_on_and_makes_its_page(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measure, "_SECONDS", 0.0)
    monkeypatch.setattr(rank, "SPECS", ("zstd", "3lc", "gcomp"))
    guide = (ROOT / "docs" / "reference" / "corpus.md").read_text()
    (tmp_path / "my_method.py").write_text(guide.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    command = ["--corpus", str(folder), "--out", str(tmp_path), "--rival", "my_method"]
    assert rank.main([*command, "--only", "zlib -1", "3lc", "gcomp"]) == 0
    again = json.loads((tmp_path / "corpus.json").read_text())
    assert [row["name"] for row in again["rows"]] == ["3lc", "gcomp", "zlib -1"]
    more = ["zstd", "zlib -1", "powerSGD_hook, rank 1", "bf16_compress_hook"]
    assert rank.main([*command, "--only", "signs and their mean", *more]) == 0
    content = json.loads((tmp_path / "corpus.json").read_text())
    assert content["rows"][:3] == again["rows"]
    names = [row["name"] for row in content["rows"]]
    assert sorted(names) == sorted(["3lc", "gcomp", "signs and their mean", *more])
    page = (tmp_path / "corpus.md").read_text()
    assert "| **signs and their mean** | my method |" in page
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith("|"))


def test_results_of_another_corpus_are_kept(folder, tmp_path, capsys):
    other = json.dumps({"digest": "another", "rows": [{}]})
    (tmp_path / "corpus.json").write_text(other)
    assert rank.main(["--corpus", str(folder), "--out", str(tmp_path)]) == 1
    assert "another corpus" in capsys.readouterr().err
    assert (tmp_path / "corpus.json").read_text() == other


def test_the_page_is_what_its_results_say():
    content = json.loads((rank.PAGES / "corpus.json").read_text())
    assert (rank.PAGES / "corpus.md").read_text() == rank.text_of(content)


def test_a_folder_that_is_no_corpus_is_named(tmp_path, capsys):
    assert rank.main(["--corpus", str(tmp_path), "--out", str(tmp_path)]) == 1
    assert "python -m lab.traces.corpus" in capsys.readouterr().err
