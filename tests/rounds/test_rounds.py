"""Federated rounds as a library: what is sent, what is kept for later, and what is refused."""

import dataclasses

import deltawire
import numpy as np
import pytest
from deltawire import rounds

SHAPES = {"conv": (20, 30), "dense": (40, 50), "bias": (40,)}


def made(seed, size=1.0):
    draw = np.random.default_rng(seed)
    return {k: draw.normal(0, size, s).astype(np.float32) for k, s in SHAPES.items()}


def added(first, second, factor=1.0):
    return {k: first[k] + np.float32(factor) * second[k] for k in first}


def close(found, due, rtol=1e-5, atol=1e-5):
    for name in due:
        np.testing.assert_allclose(found[name], due[name], rtol=rtol, atol=atol)


def begun(spec="sbc:p=1%", **options):
    """A server in its first round, a client, and the model that this has received."""
    server, client = rounds.Server(made(0), **options), rounds.Client(spec)
    server.begin()
    return server, client, client.receive(server.download("ann"))


class Fleet:
    """Clients that make random changes, and the sum of what they wanted to send."""

    def __init__(self, count, server, spec):
        self.server = server
        self.clients = [rounds.Client(spec, rank=rank) for rank in range(count)]
        self.wanted = [{k: np.zeros(s) for k, s in SHAPES.items()} for _ in range(count)]

    def answer(self, rank, seed, samples=10):
        client = self.clients[rank]
        model = client.receive(self.server.download(rank))
        change = made(seed, 0.01)
        reply = client.reply(added(model, change), samples)
        for name in SHAPES:
            self.wanted[rank][name] += change[name]
        return reply


@pytest.mark.parametrize("spec", ["sbc:p=1%", "fp32", "3lc", "topk:k=1%", "dropping", "int8"])
def test_what_clients_wanted_is_applied_or_waits_when_replies_are_lost(spec):
    server = rounds.Server(made(0), down="3lc")
    fleet = Fleet(3, server, spec)
    applied = [{k: np.zeros(s) for k, s in SHAPES.items()} for _ in range(3)]
    for number in range(12):
        server.begin()
        for rank in range(3):
            reply = fleet.answer(rank, 100 * number + rank)
            if (number + rank) % 3:  # a third never arrives
                update = server.take(rank, reply)
                for name in SHAPES:
                    applied[rank][name] += update.change[name]
        server.finish()
    server.begin()
    for rank, client in enumerate(fleet.clients):
        client.receive(server.download(rank))
        waits = client.waiting()
        close({k: applied[rank][k] + waits[k] for k in SHAPES}, fleet.wanted[rank], atol=2e-5)
        assert any(np.abs(applied[rank][k]).max() > 1e-3 for k in SHAPES)


def test_accepted_updates_are_not_sent_again_and_lost_ones_are():
    server, client, model = begun("fp32", down=None)
    change = made(1)
    lost = client.reply(added(model, change), 1)
    assert len(lost.frame) > 0
    server.finish()
    server.begin()
    model = client.receive(server.download("ann"))
    close(server.take("ann", client.reply(model, 1)).change, change)
    server.finish()
    server.begin()
    model = client.receive(server.download("ann"))
    close(client.waiting(), {k: np.zeros(s) for k, s in SHAPES.items()}, atol=0)
    close(
        server.take("ann", client.reply(model, 1)).change,
        {k: np.zeros(s) for k, s in SHAPES.items()},
    )


def test_a_client_that_comes_twice_in_a_round_loses_nothing():
    server, client, model = begun("fp32", down=None)
    first, second = made(1, 0.01), made(2, 0.01)
    server.take("ann", client.reply(added(model, first), 1))
    model = client.receive(server.download("ann"))  # it may still be replaced, or refused
    update = server.take("ann", client.reply(added(model, second), 1))
    close(update.change, added(first, second), atol=1e-6)
    close(server.finish(), added(made(0), update.change), atol=1e-6)
    server.begin()
    assert client.receive(server.download("ann")) and not client.waiting()["dense"].any()


def test_a_reply_that_comes_late_is_not_taken_for_that_of_the_round():
    server, client, model = begun("fp32", down=None)
    late = client.reply(added(model, made(1, 0.01)), 1)
    server.begin()
    reply = client.reply(client.receive(server.download("ann")), 1)
    with pytest.raises(deltawire.DeltawireError, match="is of round 0"):
        server.take("ann", late)
    close(server.take("ann", reply).change, made(1, 0.01), atol=1e-6)
    with pytest.raises(deltawire.DeltawireError, match="has replied"):
        server.take("ann", reply)


def test_a_refused_update_is_dropped_by_its_client_and_counted():
    server = rounds.Server(made(0), down=None, max_norm=5.0)
    fleet = Fleet(1, server, "topk:k=10%")
    client = fleet.clients[0]
    server.begin()
    model = client.receive(server.download(0))
    huge = made(7, 100.0)
    with pytest.raises(deltawire.DeltawireError, match="above max_norm=5"):
        server.take(0, client.reply(added(model, huge), 1))
    server.finish()
    server.begin()
    reply = fleet.answer(0, 8)
    close(client.dropped, huge, rtol=1e-4, atol=1e-3)
    server.take(0, reply)
    assert [(number, who) for number, who, _ in server.refused] == [(0, 0)]


def test_a_refused_client_is_sent_what_has_changed():
    server = rounds.Server(made(0), max_norm=5.0)
    fleet = Fleet(3, server, "fp32")
    sizes, kinds = [], []
    for number in range(4):
        server.begin()
        server.take(0, fleet.answer(0, number))
        download = server.download(1)
        sizes.append(download.byte_count)
        model = fleet.clients[1].receive(download)
        reply = fleet.clients[1].reply(added(model, made(7, 100.0)), 1)
        if number == 2:  # an old one: it says a version that the client has had
            reply = dataclasses.replace(reply, round=0, version=1)
        with pytest.raises(deltawire.DeltawireError):
            server.take(1, reply)
        late = server.download(2)
        kinds.append(late.kind)
        if number == 0:  # and is silent then
            server.take(2, fleet.clients[2].reply(fleet.clients[2].receive(late), 1))
        server.finish()
    model_bytes = sum(array.nbytes for array in made(0).values())
    assert sizes[0] > model_bytes and max(sizes[1:]) < model_bytes / 2
    assert kinds == ["full", "delta", "full", "full"]
    assert sizes[3] > 2 * sizes[2]  # from version 1 on; the client leaves out what it has


def test_a_client_that_names_an_unknown_version_is_sent_the_model():
    broadcast = rounds.Broadcast("3lc")
    broadcast.advance(made(0))
    for version in (0, -1, 2, 2**70, True, "1", None, 1.0):
        broadcast.confirm("eve", version)
        assert broadcast.download("eve").kind == "full"
    broadcast.confirm("eve", 1)
    assert broadcast.download("eve").kind == "same"
    assert broadcast.download("eve", full=True).kind == "full"
    assert broadcast.download("eve").kind == "full"  # it had lost what it had


def test_the_mean_is_weighted_by_capped_samples():
    start = made(0)
    server = rounds.Server(start, down=None, sample_cap=30)
    fleet = Fleet(2, server, "fp32")
    server.begin()
    server.take(0, fleet.answer(0, 1, samples=10))
    server.take(1, fleet.answer(1, 2, samples=10**6))
    model = server.finish()
    mean = added(added(start, made(1, 0.01), 0.25), made(2, 0.01), 0.75)
    close(model, mean, atol=1e-6)


@pytest.mark.parametrize("bases, twice", [(0, ("delta", 2)), (8, ("patch", 1))])
def test_clients_hold_the_same_bits_whatever_they_have_missed(bases, twice):
    server = rounds.Server(made(0), down="3lc", bases=bases)
    fleet = Fleet(4, server, "sbc:p=1%")
    kinds = set()
    for number in range(9):
        server.begin()
        present = [rank for rank in range(4) if number % (rank + 1) == 0]
        models = []
        for rank in present:
            download = server.download(rank)
            kinds.add((download.kind, len(download.frames)))
            models.append(fleet.clients[rank].receive(download))
            change = made(10 * number + rank, 0.01)
            server.take(rank, fleet.clients[rank].reply(added(models[-1], change), 5))
        for model in models[1:]:
            assert all(np.array_equal(model[k], models[0][k]) for k in SHAPES)
        server.finish()
    assert {("full", 1), ("delta", 1), twice} <= kinds


def test_what_the_way_down_leaves_out_comes_later():
    broadcast = rounds.Broadcast("topk:k=5%", min_elements=0)
    broadcast.advance(made(0))
    broadcast.advance(made(1))
    first = {k: np.abs(broadcast.reference[k] - made(1)[k]).max() for k in SHAPES}
    for step in range(60):
        broadcast.advance({k: v + np.float32(1e-4 * (step + 1)) for k, v in made(1).items()})
    last = {k: np.abs(broadcast.reference[k] - broadcast.source[k]).max() for k in SHAPES}
    assert all(first[k] > 0.5 and last[k] < 0.02 for k in SHAPES)


def test_an_unchanged_model_costs_nothing_and_a_small_change_little():
    server = rounds.Server(made(0), down="3lc")
    client = rounds.Client("sbc:p=1%")
    server.begin()
    full = server.download("ann")
    model = client.receive(full)
    server.take("ann", client.reply(model, 1))
    server.begin()  # nobody has changed anything
    assert (server.download("ann").kind, full.kind) == ("same", "full")
    assert client.receive(dataclasses.replace(full)) is not model


def test_momentum_and_models_that_do_not_fit_are_refused_before_anything_changes():
    with pytest.raises(deltawire.InvalidArgumentError, match="by name, in a dict"):
        rounds.Server(None)
    server, client, model = begun()
    state = client.state()
    name = next(iter(model))
    for momentum in (
        {name: model[name]},  # a dict that is not in a list
        [{name: model[name].reshape(-1)[:3]}],
        [{"another": model[name]}],
        [{name: 0.0}],
        [{name: np.broadcast_to(np.float32(0), model[name].shape)}],  # read-only
    ):
        with pytest.raises(deltawire.DeltawireError):
            client.reply(added(model, made(1)), 1, momentum=momentum)
    for trained in (None, {}, {name: [1.0]}):
        with pytest.raises(deltawire.DeltawireError):
            client.reply(trained, 1)
    assert client.state() == state


def test_a_flipped_bit_in_a_clients_model_is_found():
    server, client, model = begun()
    server.take("ann", client.reply(model, 1))
    state = client.state()
    damaged = bytearray(state["model"])
    damaged[100] ^= 1
    client.load_state({**state, "model": bytes(damaged)})
    server.begin()
    with pytest.raises(deltawire.DeltawireError, match="another digest"):
        client.receive(server.download("ann"))


@pytest.mark.parametrize("spec", ["sbc:p=1%", "dgc:p=1%", "randomk:k=5%", "qsgd"])
def test_a_state_goes_on_as_if_nothing_had_been(spec):
    server = rounds.Server(made(0), down="3lc")
    kept = rounds.Client(spec, rank=3)
    loaded = rounds.Client(spec, rank=3)
    for number in range(4):
        server.begin()
        download = server.download("ann")
        change = made(number, 0.01)
        replies = []
        for client in (kept, loaded):
            replies.append(client.reply(added(client.receive(download), change), 1))
        assert replies[0] == replies[1]
        fresh = rounds.Client(spec, rank=3)
        fresh.load_state(loaded.state())
        loaded = fresh
        server.take("ann", replies[0])
        server.finish()


def test_random_codecs_draw_other_numbers_for_each_round_and_client():
    server = rounds.Server(made(0), down=None)
    frames = []
    for rank in range(2):
        client = rounds.Client("randomk:k=5%", rank=rank, error_feedback=False)
        for _ in range(2):
            server.begin()
            model = client.receive(server.download(rank))
            frames.append(client.reply(added(model, made(1)), 1))
    read = []
    for reply in frames:
        into = {k: np.zeros(s, np.float32) for k, s in SHAPES.items()}
        deltawire.Channel("randomk:k=5%").decode(reply.frame, into)
        read.append(into["dense"] != 0)
    assert not any(np.array_equal(a, b) for i, a in enumerate(read) for b in read[:i])


def test_momentum_of_what_was_sent_is_masked():
    server, client, model = begun("topk:k=1%", down=None)
    momentum = {k: np.ones(s, np.float32) for k, s in SHAPES.items()}
    update = server.take("ann", client.reply(added(model, made(1)), 1, momentum=[momentum]))
    for name, buffer in momentum.items():
        assert np.array_equal(buffer == 0, update.change[name] != 0)
    assert 0 < (momentum["dense"] == 0).sum() < 100


def bad_replies(reply, model):
    other = deltawire.Channel("int8").encode(model, step=reply.round)
    nan = deltawire.Channel("fp32", rank=0, world_size=65_535)
    smaller = deltawire.Channel("fp32").encode({"dense": model["dense"]}, step=reply.round)
    replace = dataclasses.replace
    return {
        "old round": (replace(reply, round=reply.round - 1), "is of round"),
        "other version": (replace(reply, version=99), "version 99"),
        "garbage": (replace(reply, frame=b"garbage" * 30), "."),
        "empty": (replace(reply, frame=b""), "."),
        "cut": (replace(reply, frame=reply.frame[:-3]), "."),
        "flipped": (replace(reply, frame=reply.frame[:-9] + b"x" + reply.frame[-8:]), "."),
        "another codec's frame": (replace(reply, frame=other), "."),
        "another codec named": (replace(reply, frame=other, spec="int8"), "due is"),
        "a file's name": (replace(reply, spec="@/etc/hostname"), "due is"),
        "other tensors": (replace(reply, frame=smaller, spec=nan.spec), "."),
        "no samples": (replace(reply, samples=0), "sample count 0"),
        "negative samples": (replace(reply, samples=-690), "sample count -690"),
        "too many samples": (replace(reply, samples=10**12), "sample count"),
        "samples of no number": (replace(reply, samples=float("nan")), "sample count nan"),
        "a frame of no bytes": (replace(reply, frame=None), "no fields of a Reply"),
        "a codec of no text": (replace(reply, spec=5), "no fields of a Reply"),
    }


@pytest.mark.parametrize("which", list(bad_replies(rounds.Reply(b"", "", 0, 0, 0), made(0))))
def test_a_bad_reply_is_refused_and_the_round_goes_on(which):
    server = rounds.Server(made(0), up="fp32", down=None)
    ann, bob = rounds.Client("fp32"), rounds.Client("fp32", rank=1)
    for _ in range(2):
        server.begin()
        model = bob.receive(server.download("bob"))
        good = ann.reply(added(ann.receive(server.download("ann")), made(1)), 1)
        reply = bob.reply(added(model, made(2)), 1)
    bad, words = bad_replies(reply, made(2))[which]
    with pytest.raises(deltawire.DeltawireError, match=words):
        server.take("bob", bad)
    server.take("ann", good)
    before = server.model
    close(server.finish(), added(before, made(1), 2.0), atol=1e-4)  # the lost round's, and this
    assert [who for _, who, _ in server.refused] == ["bob"]


def test_infinite_values_in_a_frame_are_refused():
    server, client, model = begun("fp32", down=None)
    reply = client.reply(model, 1)
    raw = {k: np.full(s, np.nan, np.float32) for k, s in SHAPES.items()}
    frame = deltawire.Channel("fp32", world_size=65_535).encode(raw, step=0)
    with pytest.raises(deltawire.DeltawireError, match="not finite|NotFinite"):
        server.take("ann", dataclasses.replace(reply, frame=frame))


def test_a_client_refuses_its_own_nan_and_keeps_its_state():
    _, client, model = begun()
    before = client.state()
    model["dense"][3, 4] = np.nan
    with pytest.raises(deltawire.DeltawireError, match="'dense' has values that are not finite"):
        client.reply(model, 1)
    assert client.state() == before


@pytest.mark.parametrize(
    "trained, words",
    [
        ({"conv": np.zeros((20, 30), np.float32)}, "missing"),
        ({**made(1), "more": np.zeros(3, np.float32)}, "strange"),
        ({**made(1), "dense": np.zeros((50, 40), np.float32)}, r"dense\[50, 40\]"),
        ({**made(1), "dense": np.zeros((40, 50), np.int64)}, "int64"),
    ],
)
def test_a_client_refuses_other_tensors_than_came(trained, words):
    _, client, _ = begun()
    with pytest.raises(deltawire.DeltawireError, match=words):
        client.reply(trained, 1)


def test_a_client_that_names_specs_without_end_fills_no_memory_and_stops_nobody():
    server, client, model = begun("int8", down=None)
    reply = client.reply(added(model, made(1)), 1)
    for number in range(1, 40):
        server.download("eve")
        with pytest.raises(deltawire.DeltawireError):
            server.take("eve", rounds.Reply(b"x", f"topk:k={number}%", 0, 1, 1))
    assert len(server._intake._channels) <= 16
    server.take("ann", reply)  # of a codec that nobody has named before


def test_rules_know_the_round():
    server = rounds.Server(made(0), down=None)
    client = rounds.Client("step<2: topk:k=50%, rest topk:k=1%")
    sent = []
    for number in range(4):
        server.begin()
        model = client.receive(server.download("ann"))
        update = server.take("ann", client.reply(added(model, made(number)), 1))
        sent.append(int((update.change["dense"] != 0).sum()))
    assert sent == [1000, 1000, 20, 20]
