"""Flower's strategies through compressed messages, in one process."""

import collections
import dataclasses
import functools

import numpy as np
import pytest

pytest.importorskip(
    "flwr", reason="Flower is not installed: pip install -r requirements-flower.txt"
)

import deltawire  # noqa: E402
import deltawire.flower  # noqa: E402
from deltawire.flower import records  # noqa: E402
from flwr.app import Array, ConfigRecord, Error, Message, RecordDict  # noqa: E402
from flwr.serverapp import strategy as strategies  # noqa: E402
from local_grid import (  # noqa: E402
    ALL,
    FIRST_NODE,
    NODES,
    SHAPES,
    LocalGrid,
    compressed,
    is_train,
    make_app,
    plain,
    run,
    start_arrays,
    target,
)

STRATEGIES = {
    "FedAvg": strategies.FedAvg,
    "FedAvgM": strategies.FedAvgM,
    "FedAdam": strategies.FedAdam,
    "FedMedian": strategies.FedMedian,
    "FedTrimmedAvg": lambda **all_: strategies.FedTrimmedAvg(beta=0.2, **all_),
    "Krum": lambda **all_: strategies.Krum(num_malicious_nodes=1, **all_),
    "MultiKrum": lambda **all_: strategies.MultiKrum(
        num_malicious_nodes=1, num_nodes_to_select=5, **all_
    ),
}


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_strategy_gets_what_it_would_get_without_compression(name):
    due, _ = run(STRATEGIES[name](**ALL), make_app([]))
    wrapped = deltawire.flower.Compressed(STRATEGIES[name](**ALL), down=None)
    found, _ = run(wrapped, make_app([deltawire.flower.mod("fp32")]))
    for key in due:
        assert found[key].dtype == due[key].dtype
        np.testing.assert_allclose(found[key], due[key], atol=2e-5)
    assert not wrapped.grid.counts["refused"] and not wrapped.grid.counts["silent"]


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_each_strategy_learns_through_codecs(name):
    wrapped = deltawire.flower.Compressed(STRATEGIES[name](**ALL), down="3lc")
    found, _ = run(wrapped, make_app([deltawire.flower.mod("sbc:p=10%")]), rounds=5)
    assert all(np.isfinite(array).all() for array in found.values())
    counts = wrapped.grid.counts
    assert not counts["refused"] and not counts["silent"] and not counts["need_full"]
    assert counts["full"] == NODES
    assert counts["same"] + counts["delta"] == 9 * NODES


def test_strong_codecs_come_near_and_send_little():
    mean = {k: np.mean([target(i)[k] for i in range(NODES)], axis=0) for k in SHAPES}
    wrapped = compressed(down="int8")
    found, _ = run(wrapped, make_app([deltawire.flower.mod("int8")]), rounds=12)
    assert max(np.abs(found[k] - mean[k]).max() for k in SHAPES) < 0.05
    assert wrapped.grid.counts["up_bytes"] < wrapped.grid.counts["raw_bytes"] / 7


def test_one_array_carries_the_record_both_ways():
    _, local = run(compressed(), make_app([deltawire.flower.mod("sbc")]), rounds=2)
    for message in local.sent:
        record = message.content["arrays"]
        assert list(record) == [records.FRAME]
        assert "config" in message.content  # what the strategy sends with it


def test_counters_travel_as_they_are():
    arrays = start_arrays()
    first = arrays.pop("w1")
    arrays["steps"] = Array(np.asarray(5, np.int64))
    arrays["w1"] = first  # after it: a record's order is kept
    app = make_app([deltawire.flower.mod("fp32")], counter=True)
    due, _ = run(strategies.FedAvg(**ALL), make_app([], counter=True), rounds=2, arrays=arrays)
    found, _ = run(compressed(down=None), app, rounds=2, arrays=arrays)
    assert [found["steps"], due["steps"]] == pytest.approx([7, 7])
    assert list(found) == list(due)


def test_lost_state_is_served_in_the_same_exchange(caplog):
    wrapped = compressed()
    due, _ = run(compressed(), make_app([deltawire.flower.mod("fp32")]))
    found, _ = run(
        wrapped, make_app([deltawire.flower.mod("fp32")]), forgetful=[FIRST_NODE, FIRST_NODE + 1]
    )
    assert wrapped.grid.counts["need_full"] == 2 * 5  # every exchange but the first
    assert not wrapped.grid.counts["silent"]
    assert "have lost their state: the model again" in caplog.text
    for key in due:
        np.testing.assert_allclose(found[key], due[key], atol=1e-6)


def test_a_reply_that_never_comes_is_named_and_the_round_goes_on(caplog):
    wrapped = compressed()
    run(wrapped, make_app([deltawire.flower.mod("sbc")]), silent=[FIRST_NODE + 3])
    assert f"no reply of nodes [{FIRST_NODE + 3}]; the round goes on" in caplog.text
    assert wrapped.grid.counts["silent"] == 6


def spoiler(kind):
    """What partition 6's app returns."""

    def spoil(partition, weights):
        if partition != NODES - 1:
            return weights, 100
        if kind == "nan":
            weights["w1"][3] = np.nan
        if kind == "wrong shape":
            weights["w1"] = weights["w1"].T
        if kind == "wrong keys":
            weights["extra"] = weights.pop("b1")
        if kind == "nan metric":
            return weights, 100, np.nan
        return weights, -690 if kind == "negative count" else 100

    return spoil


@pytest.mark.parametrize(
    "kind, words",
    [
        ("nan", "'w1' has values that are not finite"),
        ("wrong shape", r"w1[40, 30] where the model has w1[30, 40]"),
        ("wrong keys", "missing ['b1'], strange ['extra']"),
        ("negative count", "must be a whole number, 1 or more"),
        ("nan metric", "metric 'loss' is nan; return finite metrics"),
    ],
)
def test_an_honest_clients_bad_model_ends_in_its_own_error(kind, words, caplog):
    wrapped = compressed()
    found, _ = run(wrapped, make_app([deltawire.flower.mod("fp32")], spoiler(kind)))
    assert all(np.isfinite(array).all() for array in found.values())
    assert words in caplog.text and f"node {FIRST_NODE + NODES - 1}" in caplog.text
    assert wrapped.grid.counts["silent"] == 3  # one error reply a round


def test_a_client_whose_training_fails_is_sent_what_has_changed_since_its_last_reply():
    trained = collections.Counter()

    def sometimes(partition, weights):
        trained[partition] += 1
        if partition == NODES - 1 and trained[partition] in (2, 3):
            weights["w1"][3] = np.nan
        return weights, 100

    make = functools.partial(strategies.FedAvg, fraction_evaluate=0.0)
    wrapped = compressed(make)
    _, local = run(wrapped, make_app([deltawire.flower.mod("fp32")], sometimes), rounds=5)
    last = [m for m in local.sent if m.metadata.dst_node_id == FIRST_NODE + NODES - 1]
    frames = [len(records.fields_of(message.content)["lengths"]) for message in last]
    kinds = [records.fields_of(message.content)["kind"] for message in last]
    assert (kinds, frames) == (["full"] + ["delta"] * 4, [1, 1, 2, 3, 1])
    assert wrapped.grid.counts["silent"] == 2 and not wrapped.grid.counts["need_full"]


def test_a_silent_client_is_sent_the_whole_model():
    """The server can't know what it has; nor does an error reply made by the link tell."""

    class Losing(LocalGrid):
        exchanges = 0

        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            self.exchanges += bool(messages)
            if self.exchanges < 2:
                return replies
            come = [r for r in replies if r.metadata.src_node_id < FIRST_NODE + 5]
            for last in (m for m in messages if m.metadata.dst_node_id == FIRST_NODE + 6):
                told = Message(Error(code=3, reason="Node Unavailable"), reply_to=last)
                told.metadata._src_node_id = 1
                come.append(told)
            return come

    make = functools.partial(strategies.FedAvg, fraction_evaluate=0.0)
    wrapped = compressed(make)
    grid = Losing(make_app([deltawire.flower.mod("fp32")]), NODES)
    wrapped.start(grid=grid, initial_arrays=start_arrays(), num_rounds=3, timeout=5.0)
    assert wrapped.grid.counts["full"] == NODES + 2  # in the round after they were silent
    assert wrapped.grid.counts["silent"] == 2 * 2


def test_what_clients_wanted_is_applied_or_waits():
    """Conservation through Flower: replies of a node vanish now and then, after it has trained."""
    wanted = {i: {k: np.zeros(s) for k, s in SHAPES.items()} for i in range(2)}
    applied = {i: {k: np.zeros(s) for k, s in SHAPES.items()} for i in range(2)}

    def count(message, context, call_next):  # inside of ours: sees plain arrays
        before = plain(message.content["arrays"])
        reply = call_next(message, context)
        if is_train(reply):
            for name, value in plain(reply.content["arrays"]).items():
                wanted[context.node_config["partition-id"]][name] += value - before[name]
        return reply

    class Losing(LocalGrid):
        exchanges = 0

        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            self.exchanges += 1
            lost = FIRST_NODE + (self.exchanges // 2) % 3  # 1002 is nobody
            if any(is_train(reply) for reply in replies):
                self.lost_last = {lost}
            return [r for r in replies if r.metadata.src_node_id != lost]

    class Watching(strategies.FedAvg):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            for reply in replies:
                node = reply.metadata.src_node_id - FIRST_NODE
                for name, value in plain(reply.content["arrays"]).items():
                    applied[node][name] += value - self.current[name]
            return super().aggregate_train(server_round, replies)

        def configure_train(self, server_round, arrays, config, grid):
            self.current = plain(arrays)
            return super().configure_train(server_round, arrays, config, grid)

    app = make_app([deltawire.flower.mod("sbc:p=5%"), count])
    every = dict.fromkeys(ALL, 2)
    grid = Losing(app, 2)
    deltawire.flower.Compressed(Watching(**every)).start(
        grid=grid, initial_arrays=start_arrays(), num_rounds=10, timeout=5.0
    )
    for i in range(2):
        client = deltawire.flower.client_mod._loaded(
            deltawire.rounds.Client("sbc:p=5%", rank=(FIRST_NODE + i) % 65_535),
            grid.contexts[FIRST_NODE + i],
        )
        waits = client.waiting()
        unsettled = pending(client)  # accepted, if it came in the last round; nobody has said so
        if (FIRST_NODE + i) not in grid.lost_last:
            waits = {name: waits[name] - unsettled[name] for name in SHAPES}
        for name in SHAPES:
            total = applied[i][name] + waits[name]
            np.testing.assert_allclose(total, wanted[i][name], atol=1e-4)
            assert name == "b1" or np.abs(waits[name]).max() > 1e-3  # b1 is small, and raw


def pending(client):
    into = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    if client._pending:
        client._channel.decode(client._pending[1], into)
    return into


def test_a_server_without_compression_is_logged(caplog):
    due, _ = run(strategies.FedAvg(**ALL), make_app([]))
    found, _ = run(strategies.FedAvg(**ALL), make_app([deltawire.flower.mod("sbc")]))
    assert "the server sends plain arrays, so the reply is not compressed" in caplog.text
    for key in due:  # the replies' order is drawn
        np.testing.assert_allclose(found[key], due[key], atol=1e-5)


def test_bad_arguments_are_errors_at_once():
    with pytest.raises(deltawire.InvalidArgumentError):
        deltawire.flower.mod("sbx")
    with pytest.raises(deltawire.InvalidArgumentError):
        compressed(down="sbx")
    with pytest.raises(deltawire.InvalidArgumentError, match="max_norm"):
        compressed(max_norm=-1.0)


def test_the_strategys_messages_are_not_changed():
    """FedAvg puts the same RecordDict in all messages; it must not be changed in place."""
    grid = LocalGrid(make_app([deltawire.flower.mod("fp32")]), 2)
    content = RecordDict({"arrays": start_arrays(), "config": ConfigRecord({"server-round": 1})})
    before = dataclasses.asdict(content["arrays"]["w1"])
    messages = [
        Message(content, dst_node_id=FIRST_NODE + i, message_type="train") for i in range(2)
    ]
    wrapped = deltawire.flower.grid.CompressedGrid(grid, down="3lc")
    replies = wrapped.send_and_receive(messages, timeout=5.0)
    assert len(replies) == 2
    assert list(content) == ["arrays", "config"]
    assert dataclasses.asdict(content["arrays"]["w1"]) == before


def test_watchers_see_every_exchange_and_the_servers_test():
    seen = []
    wrapped = compressed(watch=[seen.append])
    local = LocalGrid(make_app([deltawire.flower.mod("fp32")]), NODES, silent=[FIRST_NODE])
    wrapped.start(
        grid=local,
        initial_arrays=start_arrays(),
        num_rounds=2,
        evaluate_fn=lambda number, arrays: {"accuracy": number / 10},
    )
    assert [(s.kind, s.round) for s in seen] == [
        ("server", -1), ("train", 0), ("evaluate", 0), ("server", 0),
        ("train", 1), ("evaluate", 1), ("server", 1),
    ]  # fmt: skip
    assert [s.metrics for s in seen if s.kind == "server"] == [
        {"accuracy": 0.0}, {"accuracy": 0.1}, {"accuracy": 0.2}
    ]  # fmt: skip
    trains = [s for s in seen if s.kind == "train"]
    assert [(s.clients, s.replies, s.silent) for s in trains] == [(NODES, NODES - 1, 1)] * 2
    assert all(s.metrics == pytest.approx({"loss": 1.0}) and s.up_bytes > 0 for s in trains)
    assert sum(s.up_bytes for s in seen) == wrapped.grid.counts["up_bytes"]
    assert sum(s.down_bytes for s in seen) == wrapped.grid.counts["down_bytes"]
