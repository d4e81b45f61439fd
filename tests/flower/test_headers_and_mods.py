"""The headers sent with the frames, and the place of deltawire's mod in an app's list of mods."""

import collections
import functools

import numpy as np
import pytest
from refusals import raised

pytest.importorskip(
    "flwr", reason="Flower is not installed: pip install -r requirements-flower.txt"
)

import deltawire.flower  # noqa: E402
from deltawire.flower import records  # noqa: E402
from deltawire.rounds import ModelLayout, TensorLayout  # noqa: E402
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import strategy as strategies  # noqa: E402
from local_grid import FIRST_NODE, NODES, compressed, make_app, run, start_arrays  # noqa: E402


@pytest.mark.parametrize("down", ["3lc", None])
def test_the_layout_travels_once_to_each_client_and_is_counted(down):
    wrapped = compressed(down=down)
    _, local = run(wrapped, make_app([deltawire.flower.mod("fp32")]), forgetful=[FIRST_NODE])
    seen = collections.defaultdict(list)
    for message in local.sent:
        seen[message.metadata.dst_node_id].append("layout" in message.content[records.HEADER])
    assert seen[FIRST_NODE] == [True] + [False, True] * 5  # forgets it each time, and asks
    assert all(seen[FIRST_NODE + i] == [True] + [False] * 5 for i in range(1, NODES))
    bytes_of = [
        len(records.frame_of(m.content["arrays"])) + len(str(dict(m.content[records.HEADER])))
        for m in local.sent
    ]
    assert 0.95 * sum(bytes_of) < wrapped.grid.counts["down_bytes"] < sum(bytes_of)


def test_a_header_does_not_grow_with_the_model():
    arrays = {f"block{i // 4}.layer{i % 4}.weight": np.zeros((3, 5), "float32") for i in range(161)}
    app = ClientApp(mods=[deltawire.flower.mod("fp32")])

    @app.train()
    def train(message, context):
        counts = MetricRecord({"num-examples": 10})
        content = RecordDict({"arrays": message.content["arrays"], "metrics": counts})
        return Message(content, reply_to=message)

    make = functools.partial(strategies.FedAvg, fraction_evaluate=0.0)
    sent = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    _, local = run(compressed(make, nodes=2), app, nodes=2, arrays=sent)
    headers = [records.header_bytes(message.content) for message in local.sent]
    assert min(headers[:2]) > 161 * 25 and max(headers[2:]) < 400


def test_a_change_of_dtype_is_sent_with_the_layout():
    class Widening(strategies.FedAvg):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            wide = {name: Array(array.numpy().astype("float64")) for name, array in arrays.items()}
            return ArrayRecord(wide), metrics

    dtypes = set()

    def watching(message, context, call_next):
        dtypes.add(tuple(a.numpy().dtype.name for a in message.content["arrays"].values()))
        return call_next(message, context)

    wrapped = compressed(Widening, down="3lc")
    _, local = run(wrapped, make_app([deltawire.flower.mod("fp32"), watching]))
    assert dtypes == {("float32",) * 3, ("float64",) * 3}
    layouts = ["layout" in message.content[records.HEADER] for message in local.sent]
    assert layouts == [True] * 2 * NODES + [False] * 4 * NODES
    assert not wrapped.grid.counts["silent"] and wrapped.grid.counts["full"] == NODES


def numpy_reader(message, context, call_next):
    """A mod that wants plain arrays, as clipping and privacy do."""
    for record in message.content.array_records.values():
        record.to_numpy_ndarrays()
    return call_next(message, context)


def test_a_mod_before_ours_is_named_at_once(caplog):
    wrapped = compressed()
    run(wrapped, make_app([numpy_reader, deltawire.flower.mod("fp32")]), rounds=1)
    assert "deltawire.flower.mod must stand first in mods=[...]" in caplog.text  # its own error
    assert wrapped.grid.counts["silent"] == 2 * NODES
    caplog.clear()
    run(compressed(), make_app([harmless, deltawire.flower.mod("fp32"), numpy_reader]), rounds=1)
    assert "mods ['harmless'] stand before deltawire.flower.mod" in caplog.text
    caplog.clear()
    run(compressed(), make_app([deltawire.flower.mod("fp32"), numpy_reader, harmless]), rounds=1)
    assert "stand before" not in caplog.text


def harmless(message, context, call_next):
    return call_next(message, context)


@pytest.mark.parametrize(
    "also",
    ["", "[]", "[{}]", "[{},3]", "[[],[]]", '[{"v":"float16"},[]]', '[{"w":"int8"},[]]',
     '[{"w":["float16"]},[]]', '[{},[[0,"w"]]]', '[{},[["0","n"]]]', '[{},[[0,["n"]]]]'],
)  # fmt: skip
def test_a_form_that_no_record_has_is_refused(also):
    layout = ModelLayout((TensorLayout("w", (2,)),), also)
    assert raised(deltawire.DeltawireError, records.RecordForm.of, layout).code == "Corrupt"


def tampered_download(change):
    """A mod of a client whose server sends what `change` makes of the header's fields."""

    def mod(message, context, call_next):
        fields = records.fields_of(message.content)
        layout = message.content[records.HEADER].get("layout")
        change(fields, message.content)
        message.content[records.HEADER] = records.header_record(fields)
        if layout is not None:
            message.content[records.HEADER]["layout"] = layout
        return call_next(message, context)

    return mod


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda fields, content: fields.pop("record"), "names no arrays"),
        (lambda fields, content: fields.update(record=["arrays"]), "names no arrays"),
        (lambda fields, content: fields.update(record="config"), "names no arrays"),
        (lambda fields, content: fields.pop("samples"), "names no arrays"),
        (lambda fields, content: content["arrays"].pop("steps"), "lacks the arrays ['steps']"),
    ],
)
def test_a_download_whose_header_is_wrong_gets_an_error_that_says_so(change, words, caplog):
    arrays = start_arrays()
    arrays["steps"] = Array(np.zeros((), np.int64))
    mods = [tampered_download(change), deltawire.flower.mod("fp32")]
    run(compressed(), make_app(mods, counter=True), rounds=1, arrays=arrays)
    assert words in caplog.text
