"""Replies of hostile clients: dropped by name, and the round goes on."""

import functools

import numpy as np
import pytest

pytest.importorskip(
    "flwr", reason="Flower is not installed: pip install -r requirements-flower.txt"
)

import deltawire.flower  # noqa: E402
from deltawire.flower import records  # noqa: E402
from flwr.app import Array, ConfigRecord, RecordDict  # noqa: E402
from flwr.serverapp import strategy as strategies  # noqa: E402
from hostile import KINDS, frame, grown, header, named  # noqa: E402
from local_grid import (  # noqa: E402
    ALL,
    FIRST_NODE,
    NODES,
    SHAPES,
    compressed,
    is_train,
    make_app,
    run,
    start_arrays,
)


def tampering(change):
    """A mod of a hostile client, outermost, over the honest one."""

    def mod(message, context, call_next):
        reply = call_next(message, context)
        if context.node_config["partition-id"] == NODES - 1 and reply.has_content():
            change(reply, context)
        return reply

    return mod


def plain_reply(reply):
    del reply.content[records.HEADER]
    reply.content["arrays"] = start_arrays()


def metrics(reply, **values):
    for key, value in values.items():
        reply.content["metrics"][key.replace("_", "-")] = value


LAST = FIRST_NODE + NODES - 1
LONG_NUMBER = '{"round":' + "9" * 4000 + "}"
HOSTILE = {
    "nan": (lambda r: named(r, SHAPES, np.nan), "not finite"),
    "infinity": (lambda r: named(r, SHAPES, np.inf), "not finite"),
    "huge": (lambda r: named(r, SHAPES, 1e30), "above max_norm"),
    "garbage": (lambda r: frame(r, b"garbage" * 99), "dropped"),
    "no bytes": (lambda r: frame(r, b""), "dropped"),
    "another codec": (lambda r: KINDS["another codec's frame"](r, SHAPES), "params_hash"),
    "other shapes": (lambda r: grown(r, SHAPES), "other tensors"),
    "another codec named": (lambda r: header(r, spec="int8"), "dropped"),
    "a file's name": (lambda r: header(r, spec="@/etc/hostname"), "no codec is named"),
    "an old round": (lambda r: header(r, round=-1), "it is of round -1"),
    "another version": (lambda r: header(r, version=99), "version 99"),
    "a version of text": (lambda r: header(r, version="1"), "version '1'"),
    "no header": (plain_reply, "no header"),
    "a header of no JSON": (
        lambda r: r.content.update({records.HEADER: ConfigRecord({"header": "{"})}),
        "not the JSON",
    ),
    "deep JSON": (
        lambda r: r.content.update({records.HEADER: ConfigRecord({"header": "[" * 7_999})}),
        "not the JSON",
    ),
    "a long header": (lambda r: header(r, round="A" * 10_000_000), "header of the reply is too"),
    "a second header": (
        lambda r: r.content[records.HEADER].update({"more": "A" * 10_000_000}),
        "header of the reply is too",
    ),
    "a long number": (
        lambda r: r.content.update({records.HEADER: ConfigRecord({"header": LONG_NUMBER})}),
        "(4,000 characters)",
    ),
    "a plain model": (
        lambda r: r.content.update({"arrays": start_arrays()}),
        "not a deltawire frame",
    ),
    "two models": (lambda r: r.content.update({"more": start_arrays()}), "2 ArrayRecords"),
    "a strange array": (
        lambda r: r.content["arrays"].update({"x": Array(np.zeros(3, np.int64))}),
        "strange ['x']",
    ),
    "an unreadable array": (
        lambda r: r.content["arrays"].update({"x": Array("int64", (3,), "numpy.ndarray", b"?")}),
        "dropped",
    ),
    "negative samples": (lambda r: metrics(r, num_examples=-690), "sample count -690"),
    "samples beyond reason": (lambda r: metrics(r, num_examples=10**15), "sample count"),
    "half a sample": (lambda r: metrics(r, num_examples=0.5), "sample count 0.5"),
    "a strange metric": (lambda r: metrics(r, other=1.0), "other names or kinds"),
    "a list for a number": (lambda r: metrics(r, loss=[1.0]), "other names or kinds"),
    "a NaN metric": (lambda r: metrics(r, loss=np.nan), "metric 'loss' is nan"),
    "an infinite metric": (lambda r: metrics(r, loss=-np.inf), "metric 'loss' is -inf"),
    "a NaN in a list": (lambda r: metrics(r, loss=[1.0, np.nan]), "metric 'loss' is nan"),
    "metrics without end": (lambda r: metrics(r, loss=[1.0] * 10_001), "more than 10,000"),
    "a metric of a long name": (lambda r: metrics(r, **{"x" * 10**6: 1.0}), "200 characters"),
}


def hostile_when_training(change):
    """A client app whose last client's replies to training are changed; the others are honest."""

    def when_training(reply, _context):
        if is_train(reply):
            change(reply)

    return make_app([tampering(when_training), deltawire.flower.mod("fp32")])


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_a_hostile_reply_is_dropped_by_name_and_the_round_goes_on(kind, caplog):
    change, words = HOSTILE[kind]
    wrapped = compressed(max_norm=1e6, down=None)
    found, _ = run(wrapped, hostile_when_training(change), rounds=2)
    due, _ = run(
        strategies.FedAvg(**dict.fromkeys(ALL, NODES - 1)), make_app([]), nodes=NODES - 1, rounds=2
    )
    for key in due:
        np.testing.assert_allclose(found[key], due[key], atol=2e-5)
    assert [node for _, node, _ in wrapped.grid.refused] == [FIRST_NODE + NODES - 1] * 2
    assert words in caplog.text
    assert all(len(why) < 400 for _, _, why in wrapped.grid.refused)
    assert max(map(len, caplog.messages)) < 1000
    assert f"reply of node {FIRST_NODE + NODES - 1} dropped in round 0" in caplog.text


def down_bytes(local, node):
    """Bytes of frames that a node was sent, message by message."""
    return [
        len(records.frame_of(message.content["arrays"]))
        for message in local.sent
        if message.metadata.dst_node_id == node
    ]


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_a_refused_client_is_sent_the_whole_model_once(kind):
    """It gets one full model, like a silent client, and then changes. If no reply tells its
    version, it gets the full model again."""
    change, _ = HOSTILE[kind]
    make = functools.partial(strategies.FedAvg, fraction_evaluate=0.0)
    wrapped = compressed(make, max_norm=1e6)
    _, local = run(wrapped, hostile_when_training(change), rounds=4)
    honest, refused = down_bytes(local, FIRST_NODE), down_bytes(local, FIRST_NODE + NODES - 1)
    assert len(wrapped.grid.refused) == 4 and not wrapped.grid.counts["need_full"]
    if kind in SAY_NO_VERSION:
        assert refused == [honest[0]] * 4
    else:
        assert refused == honest and max(honest[1:]) < honest[0] / 5


SAY_NO_VERSION = {
    "another version", "a version of text", "no header", "a header of no JSON", "deep JSON",
    "a long header", "a second header", "a long number",
}  # fmt: skip


def test_an_old_reply_sent_again_is_dropped(caplog):
    kept = {}

    def replay(reply, context):
        if is_train(reply):
            old = kept.setdefault("reply", RecordDict(dict(reply.content)))
            for name, record in old.items():
                reply.content[name] = record

    wrapped = compressed()
    run(wrapped, make_app([tampering(replay), deltawire.flower.mod("fp32")]), rounds=3)
    assert [number for number, _, _ in wrapped.grid.refused] == [1, 2]
    assert "it is of round 0" in caplog.text
    # The old reply names an earlier version: the client gets the deltas since, and skips those that
    # it has.
    assert wrapped.grid.counts["full"] == NODES and not wrapped.grid.counts["need_full"]


def test_all_clients_bad_leaves_the_model_and_the_run():
    def everybody(message, context, call_next):
        if is_train(reply := call_next(message, context)):
            frame(reply, b"garbage")
        return reply

    wrapped = compressed()
    run(wrapped, make_app([everybody, deltawire.flower.mod("fp32")]), rounds=2)
    assert wrapped.grid.counts["refused"] == 2 * NODES


def test_without_settings_a_huge_update_is_dropped_by_name(caplog):
    wrapped = compressed()
    found, _ = run(wrapped, hostile_when_training(lambda r: named(r, SHAPES, 1e3)))
    assert [node for _, node, _ in wrapped.grid.refused] == [LAST] * 3
    assert "10 times the median of the round's 7 updates" in caplog.text
    assert max(np.abs(array).max() for array in found.values()) < 10


def test_a_model_that_is_not_finite_names_whom_it_was_made_from():
    class Diverging(strategies.FedAvg):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            arrays["w1"] = Array(np.full(SHAPES["w1"], np.inf, np.float32))
            return arrays, metrics

    wrapped = compressed(Diverging, max_norm=None)
    app = hostile_when_training(lambda r: named(r, SHAPES, 1e30))
    with pytest.raises(deltawire.DeltawireError, match=f"norms of .* 5.692e.31 of node {LAST}, "):
        run(wrapped, app)


def test_a_claim_of_a_billion_samples_is_capped_and_logged(caplog):
    wrapped = compressed(down=None)
    found, local = run(wrapped, hostile_when_training(lambda r: metrics(r, num_examples=10**9)))
    assert wrapped.grid.capped == [(number, LAST, 10**9, 200) for number in range(3)]
    assert f"nodes [{LAST}] count with 200 samples" in caplog.text
    honest, _ = run(
        compressed(down=None, sample_cap=None), make_app([deltawire.flower.mod("fp32")])
    )
    owned, _ = run(
        compressed(down=None, sample_cap=None),
        hostile_when_training(lambda r: metrics(r, num_examples=10**9)),
    )
    far = {k: np.abs(owned[k] - honest[k]).mean() for k in SHAPES}
    assert all(np.abs(found[k] - honest[k]).mean() < 0.7 * far[k] for k in SHAPES)


def test_lists_of_another_length_cost_a_metric_and_no_update(caplog):
    def app(message, context, call_next):  # a number for each class that a client has
        reply = call_next(message, context)
        classes = 3 + context.node_config["partition-id"] % 3
        reply.content["metrics"]["per-class"] = [0.5] * classes
        return reply

    wrapped = compressed(down=None)
    found, _ = run(wrapped, make_app([deltawire.flower.mod("fp32"), app]), rounds=2)
    assert not wrapped.grid.refused
    assert "metrics ['per-class'] are lists of different lengths in round 0" in caplog.text
    due, _ = run(compressed(down=None), make_app([deltawire.flower.mod("fp32")]), rounds=2)
    for key in due:
        np.testing.assert_allclose(found[key], due[key], atol=2e-5)


def test_a_long_error_is_cut_before_it_is_logged_or_handed_on(caplog):
    def failing(message, context, call_next):
        if context.node_config["partition-id"] == NODES - 1:
            raise RuntimeError("A" * 10**6)
        return call_next(message, context)

    run(compressed(), make_app([deltawire.flower.mod("fp32"), failing]), rounds=1)
    assert f"node {LAST} replies with an error" in caplog.text
    assert max(map(len, caplog.messages)) < 3000


def test_a_reply_refused_in_evaluation_says_nothing_of_the_training():
    """The client's update was taken, and so it must not drop what waits."""

    def spoiled(reply, _context):
        if not is_train(reply):
            metrics(reply, loss=np.nan)

    app = make_app([tampering(spoiled), deltawire.flower.mod("sbc:p=5%")])
    wrapped = compressed()
    _, local = run(wrapped, app, rounds=3)
    assert [node for _, node, _ in wrapped.grid.refused] == [LAST] * 3
    last = [m for m in local.sent if m.metadata.dst_node_id == LAST]
    assert [records.fields_of(m.content)["refused"] for m in last] == [-1] * 6
    assert [records.fields_of(m.content)["accepted"] for m in last] == [-1, 0, 0, 1, 1, 2]
