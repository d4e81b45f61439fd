"""A model's layout travels once to each client, and again to one that doesn't know it."""

import dataclasses

import deltawire
import numpy as np
import pytest
from deltawire import rounds
from deltawire.rounds import ModelLayout, TensorLayout
from refusals import raised

NAMES = [f"block{i // 4}.layer{i % 4}.weight" for i in range(161)]


def made(value=0.0):
    return {name: np.full((3, 5), value, np.float32) for name in NAMES}


def exchange(server, client, who, value):
    download = server.download(who)
    model = client.receive(download)
    reply = client.reply({name: array + np.float32(value) for name, array in model.items()}, 1)
    server.take(who, reply)
    return download


@pytest.mark.parametrize("down", ["3lc", None])
def test_the_layout_travels_once_and_its_id_from_then_on(down):
    server, client = rounds.Server(made(), down=down), rounds.Client("fp32")
    downloads = []
    for number in range(4):
        server.begin()
        downloads.append(exchange(server, client, "ann", number + 1.0))
        server.finish()
    assert [d.layout is not None for d in downloads] == [True, False, False, False]
    assert len({d.layout_id for d in downloads}) == 1
    frames = [sum(map(len, d.frames)) for d in downloads]
    layout = len(downloads[0].layout.text)
    assert layout > 30 * len(NAMES)
    assert [d.byte_count - f for d, f in zip(downloads, frames, strict=True)] == [layout, 0, 0, 0]


def test_a_silent_clients_layout_is_sent_again():
    server, client = rounds.Server(made()), rounds.Client("fp32")
    server.begin()
    exchange(server, client, "ann", 1.0)
    server.finish()
    server.begin()
    assert server.download("ann").layout is None  # and nothing changes
    server.begin()
    assert server.download("ann").layout is not None


@pytest.mark.parametrize("down", ["3lc", None])
def test_a_restarted_client_asks_for_the_model_and_gets_it_with_the_layout(down):
    server = rounds.Server(made(), down=down)
    server.begin()
    exchange(server, rounds.Client("fp32"), "ann", 1.0)
    server.finish()
    server.begin()
    restarted = rounds.Client("fp32")
    with pytest.raises(deltawire.DeltawireError, match="ask the server for the full") as caught:
        restarted.receive(server.download("ann"))
    assert caught.value.code == "State" and restarted.layout is None
    full = server.download("ann", full=True)
    assert (full.kind, full.base) == ("full", 0) and full.layout is not None
    model = restarted.receive(full)
    assert list(model) == NAMES
    server.take("ann", restarted.reply(model, 1))


def test_a_state_keeps_the_layout():
    server, client = rounds.Server(made(), down=None), rounds.Client("fp32")
    server.begin()
    exchange(server, client, "ann", 1.0)
    server.finish()
    loaded = rounds.Client("fp32")
    loaded.load_state(client.state())
    assert loaded.layout == client.layout
    server.begin()
    assert exchange(server, loaded, "ann", 1.0).layout is None
    empty = rounds.Client("fp32")
    empty.load_state(rounds.Client("fp32").state())
    assert empty.layout is None


def test_another_text_with_the_model_is_another_layout():
    broadcast, client = rounds.Broadcast("3lc"), rounds.Client("fp32")
    broadcast.advance(made(), also="float32")
    client.receive(broadcast.download("ann"))
    broadcast.confirm("ann", 1)
    assert broadcast.download("ann").layout is None
    broadcast.advance(made(), also="float64")  # the same values
    download = broadcast.download("ann")
    assert (download.kind, download.layout.also) == ("same", "float64")
    client.receive(download)
    assert client.layout.also == "float64"


def test_an_id_depends_on_names_shapes_order_and_text():
    first = ModelLayout((TensorLayout("a", (1, 2)), TensorLayout("b", ())), "x")
    others = [
        ModelLayout(first.tensors[::-1], "x"),
        ModelLayout(first.tensors, "y"),
        ModelLayout((TensorLayout("a", (2, 1)), first.tensors[1]), "x"),
        ModelLayout((TensorLayout("a2", (1, 2)), first.tensors[1]), "x"),
        ModelLayout(),
    ]
    assert len({first.id, *(other.id for other in others)}) == 6
    assert len(first.id) == 16
    assert ModelLayout.from_text(first.text) == first


def test_a_layout_under_another_id_is_refused():
    broadcast, client = rounds.Broadcast("3lc"), rounds.Client("fp32")
    broadcast.advance(made())
    download = dataclasses.replace(broadcast.download("ann"), layout_id="0" * 16)
    with pytest.raises(deltawire.DeltawireError, match="layout 0000000000000000"):
        client.receive(download)
    assert client.version == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 1000,
        "[[],3]",
        "[[]]",
        '[[["w"]],""]',
        '[[["w",3]],""]',
        '[[[1,[2]]],""]',
        '[[[["w"],[2]]],""]',
        '[[["w",[-2]]],""]',
        '[[["w",[2.0]]],""]',
        '[[["w",["2"]]],""]',
        '[[["w",[true]]],""]',
        '[[["w",[4294967296]]],""]',
        '[[["w",[2]],["w",[3]]],""]',
        f'[[["w",{[1] * 33}]],""]',
        f'[[["w",[{"9" * 5000}]]],""]',
    ],
)
def test_a_text_that_is_no_layout_is_refused(text):
    assert raised(deltawire.DeltawireError, ModelLayout.from_text, text).code == "Corrupt"


def test_a_state_that_cannot_be_loaded_changes_nothing():
    server, client = rounds.Server(made(), down=None), rounds.Client("sbc:p=1%")
    server.begin()
    exchange(server, client, "ann", 1.0)
    state = client.state()
    for changes, code in (
        ({"spec": "sbc:p=2%"}, "Mismatch"),
        ({"model": state["model"][:-4]}, "Mismatch"),
        ({"model": state["model"][:-1]}, "Mismatch"),
        ({"layout": "{"}, "Corrupt"),
        ({"residual": state["residual"][:-1]}, "Truncated"),
        ({"version": "1"}, "InvalidArgument"),
        ({"pending": None}, "InvalidArgument"),
        ({"pending": state["pending"][:-1]}, "Truncated"),
        ({"pending_round": True}, "InvalidArgument"),
    ):
        refused = raised(deltawire.DeltawireError, client.load_state, {**state, **changes})
        assert refused.code == code, changes
    for key in state:
        with pytest.raises(deltawire.InvalidArgumentError, match=f"lacks {key}"):
            client.load_state({other: value for other, value in state.items() if other != key})
    with pytest.raises(deltawire.InvalidArgumentError, match="not NoneType"):
        client.load_state(None)
    assert client.state() == state
