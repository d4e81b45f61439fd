"""A round for people: its line, and TensorBoard's scalars."""

import sys

import pytest
from deltawire import rounds

TRAIN = rounds.Seen(
    "train", 2, 200, 160, 3, 37, down_bytes=1000, up_bytes=500, raw_bytes=30_000,
    metrics={"loss": 0.25},
)  # fmt: skip
SERVER = rounds.Seen("server", -1, metrics={"accuracy": 0.5})


def test_the_line_says_who_what_and_how_much(capsys):
    rounds.live_line(TRAIN)
    assert capsys.readouterr().err == (
        "deltawire: round 2 train: 160 of 200 clients; 3 refused; 37 silent; down 1,000 bytes, "
        "up 500; 20.0 times smaller; loss 0.25\n"
    )
    assert SERVER.line() == "deltawire: round -1 server: accuracy 0.5"


def test_scalars_are_named_by_kind():
    assert TRAIN.scalars() == {
        "train/clients": 200, "train/replies": 160, "train/refused": 3, "train/silent": 37,
        "train/down_bytes": 1000, "train/up_bytes": 500, "train/loss": 0.25,
    }  # fmt: skip
    assert SERVER.scalars() == {"server/accuracy": 0.5}
    assert SERVER.clients == SERVER.replies == SERVER.down_bytes == SERVER.up_bytes == 0


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = rounds.TensorBoard(tmp_path / "runs")
    board(TRAIN)
    board(SERVER)
    board.close()
    found = EventAccumulator(str(tmp_path / "runs")).Reload()
    read = {tag: found.Tensors(tag)[0] for tag in found.Tags()["tensors"]}
    values = {tag: (event.step, event.tensor_proto.float_val[0]) for tag, event in read.items()}
    assert values["train/up_bytes"] == (2, 500) and values["server/accuracy"] == (0, 0.5)
    assert set(values) == {*TRAIN.scalars(), *SERVER.scalars()}


def test_without_tensorboard_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
        rounds.TensorBoard(tmp_path)


def test_a_tensorboard_that_lacks_something_else_says_what_that_is(monkeypatch, tmp_path):
    package = tmp_path / "tensorboard"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "summary.py").write_text("import a_module_that_nobody_has\n")
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        rounds.TensorBoard(tmp_path / "runs")
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        del sys.modules[name]  # which later tests would take for the real one
