"""The comparison of local steps: its rows, and what is kept of them."""

import dataclasses
import json
import math

import pytest
import torch

from lab.data.images import DataError
from lab.probes.local_rounds import __main__ as local_rounds
from lab.probes.local_rounds import training
from lab.probes.local_rounds.methods import COMPARED, METHODS, SIZES, STREAMING
from lab.probes.local_rounds.training import Setting
from lab.ranks.launcher import Launcher

TEXT = b"To be, or not to be, that is the question: " * 40
SHORT = ["--parameters=tiny", "--workers=2", "--rounds=4", "--steps=3", "--every=2"]


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
    names = [name for name in METHODS if name not in STREAMING]
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
    del rows["ddp-muon-fp4"]  # in so few steps 3lc's first ones, by its rule
    assert len({row["loss"] for row in rows.values()}) == len(rows), "two methods are the same"
    assert [path.name for path in out.iterdir()] == ["rows.json"]
    shown = capsys.readouterr()
    assert "| SparseLoCo | `gather(sparseloco)` |" in shown.out
    assert "sbc, seed 1, round 4 of 4: loss" in shown.err and "min left" in shown.err


def test_goes_on_with_the_rows_that_are_missing(folder, monkeypatch):
    arguments = [*SHORT, "--methods", "local", "sbc", "--out", str(folder / "out")]
    kept = local_rounds.keep

    def interrupted(*given):
        kept(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(local_rounds, "keep", interrupted)
    assert local_rounds.main(arguments) == 130
    (first,) = rows_of(folder / "out")
    asked = []

    def started(ranks, job):
        asked.append(job.rows)
        return start(ranks, job)

    start = Launcher.start
    monkeypatch.setattr(Launcher, "start", started)
    monkeypatch.setattr(local_rounds, "keep", kept)
    for _ in range(2):
        assert local_rounds.main(arguments) == 0
    assert asked == [[("sbc", 1)]]
    assert rows_of(folder / "out")[0] == first


def test_a_row_that_is_cut_goes_on_with_the_same_losses(folder, capsys):
    short = [*SHORT, "--rounds=2", "--every=1", "--methods", "ef21-muon-3lc", "muloco"]
    assert local_rounds.main([*short, "--out", str(folder / "whole")]) == 0
    cut = [*short, "--minutes=0", "--out", str(folder / "cut")]
    for begun in ("ef21-muon-3lc", "muloco", None):
        assert local_rounds.main(cut) == 0
        said = capsys.readouterr().err
        assert ("was cut" in said) == (begun is not None) and f"{begun or ''}, seed 1" in said
    for whole, parts in zip(*(rows_of(folder / out) for out in ("whole", "cut")), strict=True):
        assert [each[::2] for each in parts["curve"]] == [each[::2] for each in whole["curve"]]
        for key in ("bytes", "bits"):  # DDP numbers its buckets anew, in other messages
            assert parts[key] == pytest.approx(whole[key], rel=0.1)
    assert not list((folder / "cut").glob("*/*"))


def test_a_row_is_in_place_on_all_ranks_before_rank_0_says_so(monkeypatch, tmp_path):
    state, there = tmp_path / "row.state", []
    monkeypatch.setattr(training.dist, "barrier", lambda: there.append(state.exists()))
    training._keep({}, state)
    assert there == [False, True]


@pytest.mark.thorough
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
    trained = []

    def pretrained(*setting, train=training.pretrained):
        trained.append(train(*setting))
        return trained[-1]

    monkeypatch.setattr(training, "pretrained", pretrained)
    out = ["--out", str(folder / "out")]
    # A rate of nearly 0: the losses are those of the first weights.
    still = [*SHORT, "--lr=1e-9", *out]
    assert local_rounds.main([*still, "--methods", "ddp", "diloco", "--pretraining=4"]) == 0
    assert local_rounds.main([*still, "--methods", "ddp"]) == 0
    assert len(trained) == 1
    tables = json.loads((folder / "out" / "rows.json").read_text()).values()
    (ddp, diloco), (unlearned,) = ([row["loss"] for row in each.values()] for each in tables)
    assert ddp == pytest.approx(diloco, abs=1e-5) != pytest.approx(unlearned, abs=1e-3)
    again = ["--methods", "local", "--pretraining=4", "--lr=0.01", "--every=4", *out]
    assert local_rounds.main([*SHORT, *again]) == 0
    assert len(trained) == 1, "they depend on neither"


def test_rows_of_another_process_are_kept(folder):
    out = folder / "out"
    for seed in (7, 1):
        local_rounds.keep(folder, "words", f"local, seed {seed}", {"seed": seed})
    assert [row["seed"] for row in rows_of(folder)] == [7, 1]
    assert local_rounds.kept_rows(out) == {}


def test_a_method_that_diverges_is_a_row(folder, capsys):
    """Codecs that carry only finite values end it at once; the next row goes on."""
    out, methods = folder / "out", ["--methods", "diloco-3lc", "ddp-3lc", "local"]
    assert local_rounds.main([*SHORT, *methods, "--lr", "1e30", "--out", str(out)]) == 0
    rows = rows_of(out)
    assert all(math.isnan(row["loss"]) for row in rows)
    assert [row["curve"][-1][0] < 4 for row in rows] == [True, True, False]
    assert capsys.readouterr().out.count("| nan |") >= 3


@pytest.mark.parametrize(
    "bad",
    [["--rounds", "0"], ["--batch", "0"], ["--pretraining", "-1"], ["--methods", "4lc"]]
    + [["--minutes", "-1"], ["--minutes", "nan"]],
)
def test_refused_arguments(bad, capsys):
    with pytest.raises(SystemExit) as end:
        local_rounds.parse(bad)
    assert end.value.code == 2 and bad[0] in capsys.readouterr().err


def test_a_text_that_is_too_short_is_refused(folder, capsys):
    (folder / "wikitext-2" / "wiki.test.tokens").write_bytes(b"To be")
    assert local_rounds.main(SHORT) == 1
    assert "too short" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"wiki\.valid"):
        local_rounds.texts.read_bytes(folder / "none")


def test_each_size_has_the_parameters_that_it_names():
    for name, millions in (("small", 0.5), ("22m", 22), ("151m", 151), ("1b", 1000)):
        setting = Setting(SIZES[name], 1, 1, 1, 0.1)
        with torch.device("meta"):
            network = training.new_network(setting, 1)
        count = sum(p.numel() for p in network.parameters())
        assert count / 1e6 == pytest.approx(millions, rel=0.03)


@pytest.mark.parametrize(("embedding", "deviation"), [(None, 1), (0.02, 0.02)])
def test_the_first_embedding(embedding, deviation):
    size = dataclasses.replace(SIZES["tiny"], embedding=embedding)
    network = training.new_network(Setting(size, 2, 3, 5, 0.01), seed=1)
    assert network.embedding.weight.std().item() == pytest.approx(deviation, rel=0.05)
