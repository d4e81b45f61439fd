"""No client's reply outweighs the others', and the server keeps little of a reply."""

import dataclasses
import inspect

import deltawire
import numpy as np
import pytest
from deltawire import rounds
from deltawire.rounds.limits import brief

SHAPE = (40, 50)


def filled(value):
    return {"w": np.full(SHAPE, value, np.float32)}


def replies_to(server, values, samples=None, clients=None):
    """A round of clients 0, 1, ..., each with an update of one value."""
    clients = clients or [rounds.Client("fp32", rank=rank) for rank in range(len(values))]
    server.begin()
    for rank, (client, value) in enumerate(zip(clients, values, strict=True)):
        model = client.receive(server.download(rank))
        count = 10 if samples is None else samples[rank]
        server.take(rank, client.reply({"w": model["w"] + np.float32(value)}, count))
    return clients


def test_an_update_far_above_the_others_is_refused_when_the_round_ends():
    server = rounds.Server(filled(0), down=None)
    clients = replies_to(server, [1.0, 1.1, 0.9, 1e30, 1.0])
    np.testing.assert_allclose(server.finish()["w"], 1.0, rtol=1e-6)
    ((number, who, why),) = server.refused
    assert (number, who) == (0, 3)
    assert "10 times the median of the round's 5 updates" in why and "max_norm=" in why
    server.begin()
    clients[3].receive(server.download(3))  # and is told
    np.testing.assert_allclose(clients[3].dropped["w"], 1e30, rtol=1e-6)
    clients[0].receive(server.download(0))
    assert not clients[0].dropped


def test_honest_spread_is_taken():
    server = rounds.Server(filled(0), down=None)
    replies_to(server, [0.0, 0.2, 1.0, 9.9, 1.0])
    server.finish()
    assert not server.refused


def test_of_two_replies_none_is_judged_out_of_line():
    server = rounds.Server(filled(0), down=None)
    clients = replies_to(server, [0.01, 1.0])
    np.testing.assert_allclose(server.finish()["w"], 0.505, rtol=1e-5)
    clients.append(rounds.Client("fp32", rank=2))
    # Clients that had nothing to send say nothing of others.
    replies_to(server, [0.0, 0.0, 1.0], clients=clients)
    server.finish()
    assert not server.refused


@pytest.mark.parametrize("limit", [None, 1e45, rounds.Medians(10)])
def test_finite_updates_that_would_overflow_the_mean_are_refused_by_name(limit):
    server = rounds.Server(filled(3e38), down=None, max_norm=limit)
    server.begin()
    ann, eve = rounds.Client("fp32"), rounds.Client("fp32", rank=1)
    model = ann.receive(server.download("ann"))
    server.take("ann", ann.reply(model, 1))
    reply = ann.reply(eve.receive(server.download("eve")), 1)
    huge = deltawire.Channel("fp32", world_size=65_535).encode(filled(3e38), step=0)
    with pytest.raises(deltawire.DeltawireError, match=r"'w' \+ the update is beyond what float32"):
        server.take("eve", dataclasses.replace(reply, frame=huge))
    assert np.isfinite(server.finish()["w"]).all()
    server.begin()
    assert [who for _, who, _ in server.refused] == ["eve"]


def test_one_claim_of_a_billion_samples_does_not_own_the_model():
    server = rounds.Server(filled(0), down=None)
    clients = replies_to(server, [1.0, 1.0, 5.0], samples=[100, 120, 10**9])
    np.testing.assert_allclose(server.finish()["w"], (220 + 5 * 240) / 460, rtol=1e-5)
    assert server.capped == [(0, 2, 10**9, 240)]
    replies_to(server, [0.0, 1.0], [100, 10**9], clients[:2])  # of two, the lower counts
    server.finish()
    assert server.capped[1:] == [(1, 1, 10**9, 200)]


HONEST = {  # claims of eight clients
    "alike": [100] * 8,
    "most next to nothing": [1] * 4 + [100] * 4,
    "spread": [10, 20, 40, 80, 160, 320, 640, 1280],
}


@pytest.mark.parametrize("honest", HONEST)
@pytest.mark.parametrize("more", [-1, 0, 1, 10**8], ids=lambda more: f"cap{more:+}")
def test_two_of_ten_hold_at_most_half_whatever_anybody_claims(honest, more):
    claims = HONEST[honest]
    cap = 2 * sorted([*claims, *[10**9] * 2])[4]  # the median is the lower one
    server = rounds.Server(filled(0), down=None, max_norm=None)
    replies_to(server, [0.0] * 8 + [1.0] * 2, [*claims, *[cap + more] * 2])
    share = float(server.finish()["w"].mean())  # only the two change anything
    assert share <= 0.5 + 1e-6
    if honest == "alike":
        assert share == pytest.approx(1 / 3, abs=2e-3)
    assert {who for _, who, _, _ in server.capped if who >= 8} == ({8, 9} if more > 0 else set())


def test_clients_alike_are_not_capped_and_no_samples_are_no_claim():
    server = rounds.Server(filled(0), down=None)
    clients = replies_to(server, [1.0, 2.0, 3.0], samples=[7, 7, 7])
    np.testing.assert_allclose(server.finish()["w"], 2.0, rtol=1e-6)
    assert not server.capped
    server.begin()
    reply = clients[0].reply(clients[0].receive(server.download(0)), 1)
    with pytest.raises(deltawire.InvalidArgumentError, match="sample count 0 is not a whole"):
        server.take(0, dataclasses.replace(reply, samples=0))


def test_without_limits_every_claim_counts():
    server = rounds.Server(filled(0), down=None, max_norm=None, sample_cap=None)
    replies_to(server, [0.0, 0.0, 0.0, 1e6], samples=[1, 1, 1, 10**9])
    np.testing.assert_allclose(server.finish()["w"], 1e6, rtol=1e-5)
    assert not server.refused and not server.capped


@pytest.mark.parametrize("name", ["max_norm", "sample_cap"])
@pytest.mark.parametrize("value", [0, -1.0, True, "10", float("nan")])
def test_a_bad_limit_is_an_error_at_once(name, value):
    with pytest.raises(deltawire.InvalidArgumentError, match=name):
        rounds.Server(filled(0), **{name: value})


@pytest.mark.parametrize("factor", [0.5, float("inf"), float("nan"), True, "10"])
def test_a_bad_factor_is_an_error_at_once(factor):
    with pytest.raises(deltawire.InvalidArgumentError, match="from 1 on"):
        rounds.Medians(factor)


def test_the_median_is_the_lower_and_counts_no_zeros():
    medians = rounds.Medians(2)
    assert medians.of({"a": 1.0, "b": 100.0}) == 2.0
    assert medians.of({"a": 0.0, "b": 3.0, "c": 0.0}) == 6.0
    assert medians.of({"a": 0.0}) is None and medians.of({}) is None


def test_what_is_kept_of_a_refused_reply_is_short():
    server = rounds.Server(filled(0), down=None)
    client = rounds.Client("fp32")
    for field in ("round", "version", "samples", "spec"):
        server.begin()
        reply = client.reply(client.receive(server.download("eve")), 1)
        with pytest.raises(deltawire.DeltawireError):
            server.take("eve", dataclasses.replace(reply, **{field: "A" * 10**6}))
    assert len(server.refused) == 4
    assert all(len(why) < 400 for _, _, why in server.refused)
    assert brief("x" * 1000, 10) == "xxxxxxxxxx... (1,000 characters)" and brief("xy", 2) == "xy"


def test_both_ends_leave_the_same_small_arrays_uncompressed():
    """What nobody set must be alike, or neither end could read the other."""
    ends = (rounds.Client, rounds.Server, rounds.Intake, rounds.Broadcast)
    defaults = [inspect.signature(end).parameters["min_elements"].default for end in ends]
    assert defaults == [256] * 4
