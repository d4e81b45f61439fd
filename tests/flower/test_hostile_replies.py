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

from lab.flower_hostile import KINDS, frame, grown, header, named  # noqa: E402


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


HOSTILE = {
    "nan": (lambda r: named(r, SHAPES, np.nan), "not finite"),
    "infinity": (lambda r: named(r, SHAPES, np.inf), "not finite"),
    "huge": (lambda r: named(r, SHAPES, 1e30), "above max_norm"),
    "garbage": (lambda r: frame(r, b"garbage" * 99), "dropped"),
    "no bytes": (lambda r: frame(r, b""), "dropped"),
    "another codec": (lambda r: KINDS["another codec's frame"](r, SHAPES), "params_hash"),
    "other shapes": (lambda r: grown(r, SHAPES), "layout_hash"),
    "another codec named": (lambda r: header(r, spec="int8"), "dropped"),
    "a file's name": (lambda r: header(r, spec="@/etc/hostname"), "is no codec's spec"),
    "an old round": (lambda r: header(r, round=-1), "it is of round -1"),
    "another version": (lambda r: header(r, version=99), "version 99"),
    "a version of text": (lambda r: header(r, version="1"), "version '1'"),
    "no header": (plain_reply, "no header"),
    "a header of no JSON": (
        lambda r: r.content.update({records.HEADER: ConfigRecord({"header": "{"})}),
        "not the JSON",
    ),
    "deep JSON": (
        lambda r: r.content.update({records.HEADER: ConfigRecord({"header": "[" * 99_999})}),
        "not the JSON",
    ),
    "a plain model": (lambda r: r.content.update({"arrays": start_arrays()}), "no deltawire frame"),
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
    "a strange metric": (lambda r: metrics(r, other=1.0), "named otherwise"),
}


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_a_hostile_reply_is_dropped_by_name_and_the_round_goes_on(kind, caplog):
    change, words = HOSTILE[kind]

    def when_training(reply, _context):
        if is_train(reply):
            change(reply)

    mods = [tampering(when_training), deltawire.flower.mod("fp32")]
    wrapped = compressed(max_norm=1e6, down=None)
    found, _ = run(wrapped, make_app(mods), rounds=2)
    due, _ = run(
        strategies.FedAvg(**dict.fromkeys(ALL, NODES - 1)), make_app([]), nodes=NODES - 1, rounds=2
    )
    for key in due:
        np.testing.assert_allclose(found[key], due[key], atol=2e-5)
    assert [node for _, node, _ in wrapped.grid.refused] == [FIRST_NODE + NODES - 1] * 2
    assert words in caplog.text
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
    """As the others: one full model, then what has changed. Where no reply says which version its
    client has, it gets the model again."""
    change, _ = HOSTILE[kind]

    def when_training(reply, _context):
        if is_train(reply):
            change(reply)

    mods = [tampering(when_training), deltawire.flower.mod("fp32")]
    make = functools.partial(strategies.FedAvg, fraction_evaluate=0.0)
    wrapped = compressed(make, max_norm=1e6)
    _, local = run(wrapped, make_app(mods), rounds=4)
    honest, refused = down_bytes(local, FIRST_NODE), down_bytes(local, FIRST_NODE + NODES - 1)
    assert len(wrapped.grid.refused) == 4 and not wrapped.grid.counts["need_full"]
    if kind in SAY_NO_VERSION:
        assert refused == [honest[0]] * 4
    else:
        assert refused == honest and max(honest[1:]) < honest[0] / 5


SAY_NO_VERSION = {
    "another version", "a version of text", "no header", "a header of no JSON", "deep JSON"
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
    # It says a version that it has had: deltas from there, of which it leaves out what it has.
    assert wrapped.grid.counts["full"] == NODES and not wrapped.grid.counts["need_full"]


def test_all_clients_bad_leaves_the_model_and_the_run():
    def change(reply, context):
        if is_train(reply):
            frame(reply, b"garbage")

    def everybody(message, context, call_next):
        reply = call_next(message, context)
        change(reply, context)
        return reply

    wrapped = compressed()
    run(wrapped, make_app([everybody, deltawire.flower.mod("fp32")]), rounds=2)
    assert wrapped.grid.counts["refused"] == 2 * NODES
