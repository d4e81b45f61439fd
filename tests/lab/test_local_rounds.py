"""The comparison of local steps: rows, runs that go on, and the same weights as LocalSteps."""

import dataclasses
import json
import math

import deltawire.torch
import numpy as np
import pytest
import torch

from lab.data.images import DataError
from lab.probes.local_rounds import __main__ as local_rounds
from lab.probes.local_rounds import training
from lab.probes.local_rounds.methods import COMPARED, METHODS, SIZES, STREAMING, Method
from lab.probes.local_rounds.sessions import Sessions
from lab.probes.local_rounds.training import LocalRounds, Setting, Text, Worker
from lab.ranks.launcher import Launcher
from lab.ranks.rank import Line, Place, process_group

TEXT = b"To be, or not to be, that is the question: " * 40
SHORT = ["--parameters=tiny", "--workers=2", "--rounds=4", "--steps=3", "--every=2", "--device=cpu"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "wikitext-2").mkdir()
    for name in ("valid", "test"):
        (tmp_path / "wikitext-2" / f"wiki.{name}.tokens").write_bytes(TEXT)
    monkeypatch.setenv("DELTAWIRE_DATA", str(tmp_path))
    return tmp_path


def rows_of(out) -> list[dict]:
    (finished,) = json.loads((out / "rows.json").read_text()).values()
    return list(finished.values())


def test_a_row_for_every_method(folder, capsys):
    out = folder / "out"
    names = [name for name in METHODS if name not in STREAMING]  # CASES has their settings
    methods = ["--methods", *names, "--out", str(out)]
    assert local_rounds.main([*SHORT, *methods]) == 0
    rows = {row["method"]: row for row in rows_of(out)}
    assert list(rows) == names and set(COMPARED) < set(names)
    for row in rows.values():
        assert 2 < row["loss"] < math.log(256) + 0.5 and row["curve"][-1][0] == 4
        assert row["curve"][-1][1] == row["bytes"]
    # 12 gradients or 4 changes; fp32 needs a little more than 32 bits, for its headers.
    assert rows["ddp"]["bytes"] == pytest.approx(3 * rows["local"]["bytes"], rel=0.05)
    assert 32 < rows["diloco"]["bits"] < 33
    assert all(rows[name]["bits"] < 6 for name in ("diloco-3lc", "sbc", "sparseloco"))
    assert len({row["loss"] for row in rows.values()}) == len(rows), "two methods are the same"
    assert {path.name for path in out.iterdir()} == {
        *("rows.json", "loss-bytes.svg", "loss-rounds.svg")
    }
    shown = capsys.readouterr()
    assert "| SparseLoCo | `gather(sparseloco)` |" in shown.out
    assert "sbc, seed 1, round 4 of 4: loss" in shown.err and "min left" in shown.err


@pytest.mark.parametrize("method", ["ddp", "muloco", "pulseloco", "streaming-fp4"])
def test_goes_on_where_it_was_interrupted(method, folder, monkeypatch):
    arguments = [*SHORT, "--methods", method, "--out"]
    assert local_rounds.main([*arguments, str(folder / "whole")]) == 0
    kind = training.EveryStep if method == "ddp" else LocalRounds
    train_round, trained = kind.train_round, []

    def interrupted(self, number, text):
        trained.append(number)
        if trained == [0, 1, 2]:
            raise KeyboardInterrupt
        train_round(self, number, text)

    monkeypatch.setattr(kind, "train_round", interrupted)
    assert local_rounds.main([*arguments, str(folder / "cut")]) == 130
    assert local_rounds.main([*arguments, str(folder / "cut")]) == 0
    assert trained == [0, 1, 2, 2, 3], "its last saved state was after two rounds"
    (whole,), (cut,) = rows_of(folder / "whole"), rows_of(folder / "cut")
    assert cut["loss"] == whole["loss"] and cut["bits"] == whole["bits"]
    assert cut["bytes"] == pytest.approx(whole["bytes"], rel=0.02)  # control messages differ
    assert local_rounds.main([*arguments, str(folder / "cut")]) == 0
    assert len(trained) == 5, "a finished row was trained again"


def test_another_setting_is_another_table(folder):
    arguments = [*SHORT, "--methods", "local", "--out", str(folder / "out")]
    for more in ([], ["--lr", "0.01"], ["--batch", "1"], ["--bf16"], ["--pretraining", "1"]):
        assert local_rounds.main([*arguments, *more]) == 0
    tables = json.loads((folder / "out" / "rows.json").read_text())
    losses = [rows["local, seed 1"]["loss"] for rows in tables.values()]
    assert len(set(losses)) == 5
    assert losses[3] == pytest.approx(losses[0], abs=0.05), "bfloat16 rounds, no more"


def test_every_method_begins_with_the_same_pretrained_weights(folder, monkeypatch):
    """Which are trained once, also for another rate."""
    trained, begun = [], []

    def pretrained(*setting, train=local_rounds.pretrained):
        weights = train(*setting)
        trained.append(weights["decoder.weight"])
        return weights

    monkeypatch.setattr(local_rounds, "pretrained", pretrained)
    for kind in (training.EveryStep, LocalRounds):

        def train_round(self, number, text, train_round=kind.train_round):
            workers = getattr(self, "_workers", [])
            for network in (self.network, *(worker.network for worker in workers)):
                begun.extend([network.decoder.weight.detach().clone()] * (number == 0))
            train_round(self, number, text)

        monkeypatch.setattr(kind, "train_round", train_round)
    out = ["--out", str(folder / "out")]
    assert local_rounds.main([*SHORT, "--methods", "ddp", "diloco", "--pretraining=4", *out]) == 0
    assert len(trained) == 1 and len(begun) == 4, "of DDP one network, of two workers three"
    assert all(torch.equal(weight, trained[0]) for weight in begun)
    again = ["--methods", "local", "--pretraining=4", "--lr=0.01", "--every=4", *out]
    assert local_rounds.main([*SHORT, *again]) == 0
    assert len(trained) == 1, "they depend on neither"


def test_rows_of_another_process_are_kept(folder, monkeypatch):
    out = folder / "out"
    assert local_rounds.main([*SHORT, "--methods", "local", "--out", str(out)]) == 0
    (row,) = rows_of(out)

    def train_while_others_do(name, seed, setting, *rest, train=local_rounds.train):
        words = next(iter(json.loads((out / "rows.json").read_text())))
        local_rounds.keep(out, words, "local, seed 7", row | {"seed": 7})
        return train(name, seed, setting, *rest)

    monkeypatch.setattr(local_rounds, "train", train_while_others_do)
    assert local_rounds.main([*SHORT, "--methods", "sbc", "--out", str(out)]) == 0
    assert [(each["method"], each["seed"]) for each in rows_of(out)] == [
        *(("local", 1), ("local", 7), ("sbc", 1))
    ]


def test_a_method_that_diverges_is_a_row(folder, capsys):
    out = folder / "out"
    assert local_rounds.main([*SHORT, "--methods", "local", "--lr", "1e30", "--out", str(out)]) == 0
    (row,) = rows_of(out)
    assert math.isnan(row["loss"]) and row["curve"][-1][0] < 4
    assert "| nan |" in capsys.readouterr().out


@pytest.mark.parametrize(
    "bad",
    [
        *(["--rounds", "0"], ["--batch", "0"], ["--pretraining", "-1"]),
        *(["--methods", "4lc"], ["--device", "cuda"]),
    ],
)
def test_refused_arguments(bad, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as end:
        local_rounds.parse(bad)
    assert end.value.code == 2 and bad[0] in capsys.readouterr().err


def test_bfloat16_is_refused_on_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(SystemExit):
        local_rounds.parse(["--bf16"])
    assert "--bf16 is for --device cpu" in capsys.readouterr().err


def test_a_text_that_is_too_short_is_refused(folder, capsys):
    (folder / "wikitext-2" / "wiki.test.tokens").write_bytes(b"To be")
    assert local_rounds.main(SHORT) == 1
    assert "too short" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"wiki\.valid"):
        local_rounds.texts.read_bytes(folder / "none")


def test_each_size_has_the_parameters_that_it_names():
    for name, millions in (("small", 0.5), ("22m", 22), ("151m", 151)):
        setting = Setting(SIZES[name], 1, 1, 1, 0.1, "meta")
        with torch.device("meta"):
            network = training.new_network(setting, 1)
        count = sum(p.numel() for p in network.parameters())
        assert count / 1e6 == pytest.approx(millions, rel=0.03)


@pytest.mark.parametrize(("embedding", "deviation"), [(None, 1), (0.02, 0.02)])
def test_the_first_embedding(embedding, deviation):
    size = dataclasses.replace(SIZES["tiny"], embedding=embedding)
    network = training.new_network(dataclasses.replace(SETTING, size=size), seed=1)
    assert network.embedding.weight.std().item() == pytest.approx(deviation, rel=0.05)


SETTING = Setting(SIZES["tiny"], workers=2, rounds=3, steps=5, learning_rate=0.01, device="cpu")
CASES = [
    METHODS["diloco-3lc"],
    METHODS["sparseloco"],
    METHODS["streaming-fp4"],
    Method("kept on top", "direct(3lc)", fragments=2, overlap=2),
    METHODS["muloco"],
    METHODS["pulseloco"],
]


def text_of_setting() -> Text:
    values = np.frombuffer(TEXT, np.uint8).copy()
    return Text(values, values, SETTING)


def weights_of(network: torch.nn.Module) -> bytes:
    return b"".join(p.detach().numpy().tobytes() for p in network.parameters())


def with_local_steps(place: Place, line: Line) -> None:
    text = text_of_setting()
    with process_group(place, 60):
        for method in CASES:
            worker = Worker(SETTING, 1, method.muon)
            trainer = deltawire.torch.LocalSteps(
                worker.network,
                worker.optimizers[0],
                method.spec,
                steps=SETTING.steps,
                outer=method.outer,
                fragments=method.fragments,
                overlap=method.overlap,
                mixing=method.mixing,
                mask_momentum=False,
            )
            for step in range(SETTING.rounds * SETTING.steps):
                worker.step(step, text.batch(1, place.rank, step))
                trainer.stepped()
            trainer.exchange()
            line.send((place.rank, weights_of(worker.network)))
            trainer.close()


@pytest.fixture
def one_thread():
    """Sums in the order in which the ranks make them; restores the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_its_rounds_are_those_of_local_steps_bit_for_bit(one_thread):
    with Launcher(with_local_steps, SETTING.workers) as ranks:
        ranks.start()
        theirs = list(ranks.messages(60))
    for method, (_, expected) in zip(CASES, theirs, strict=True):
        with Sessions(method.spec, SETTING.workers) as sessions:
            played = LocalRounds(method, SETTING, 1, sessions)
            for number in range(SETTING.rounds):
                played.train_round(number, text_of_setting())
            played.finish()
            assert weights_of(played.network) == expected, method
            assert all(weights_of(worker.network) == expected for worker in played._workers)
