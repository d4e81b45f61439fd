"""Patches and rounded weights on the way down, through Flower."""

import json

import pytest

pytest.importorskip(
    "flwr", reason="Flower is not installed: pip install -r requirements-flower.txt"
)

import deltawire  # noqa: E402
import deltawire.flower  # noqa: E402
from deltawire.flower import records  # noqa: E402
from flwr.app import ConfigRecord  # noqa: E402
from local_grid import (  # noqa: E402
    FIRST_NODE,
    NODES,
    LocalGrid,
    compressed,
    make_app,
    plain,
    start_arrays,
)

UP = "topk:k=0.1%"  # seven clients change few of the weights


def apps(seen, before=()):
    """Clients whose models are noted in `seen`, as the app gets them."""

    def note(message, context, call_next):
        seen.append(plain(message.content["arrays"]))
        return call_next(message, context)

    return make_app([*before, deltawire.flower.mod(UP), note])


def run_with(seen, *, before=(), forgetful=(), **settings):
    wrapped = compressed(**settings)
    grid = LocalGrid(apps(seen, before), NODES, forgetful=forgetful)
    wrapped.start(grid=grid, initial_arrays=start_arrays(), num_rounds=4, timeout=5.0)
    return wrapped.grid, grid


@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
def test_patches_give_clients_the_same_bits_in_fewer_bytes(weights):
    models, found = {}, {}
    for bases in (0, 8):
        models[bases] = []
        found[bases], _ = run_with(models[bases], down=None, weights=weights, bases=bases)
    kinds = [
        {kind: found[bases].counts[kind] for kind in ("same", "delta", "patch", "full")}
        for bases in (0, 8)
    ]
    assert kinds[0] == {"same": 3 * NODES, "delta": 0, "patch": 0, "full": 5 * NODES}
    assert kinds[1] == {"same": 3 * NODES, "delta": 0, "patch": 4 * NODES, "full": NODES}
    assert found[8].counts["down_bytes"] < found[0].counts["down_bytes"] / 2
    assert not found[8].counts["refused"] and not found[8].counts["silent"]
    for first, second in zip(models[0][:NODES], models[8][:NODES], strict=True):
        assert all(first[name].tobytes() == second[name].tobytes() for name in first)
    last = models[8][-NODES:]
    assert all(m[name].tobytes() == last[0][name].tobytes() for m in last for name in m)


def test_lost_state_is_served_with_the_whole_model_in_the_same_exchange():
    grid, _ = run_with([], down=None, forgetful=[FIRST_NODE])
    assert grid.counts["need_full"] == 7 and not grid.counts["silent"]
    assert grid.counts["full"] == NODES + 7


def without_patches(message, context, call_next):
    """A client of a deltawire that doesn't know patches: its replies don't name them."""
    fields = records.fields_of(message.content)
    assert fields["kind"] != "patch"
    reply = call_next(message, context)
    said = records.fields_of(reply.content)
    assert said.pop("patches") == 1
    reply.content[records.HEADER] = records.header_record(said)
    return reply


def test_a_client_that_does_not_know_patches_is_sent_none():
    grid, _ = run_with([], before=[without_patches], down=None)
    assert grid.counts["patch"] == 0 and grid.counts["full"] == 5 * NODES
    assert not grid.counts["silent"] and not grid.counts["need_full"]


@pytest.mark.parametrize("patches", [True, "1", [1], {"a": 1}, None, -1, 1.5])
def test_whatever_a_client_says_of_patches_the_round_goes_on(patches):
    def lying(message, context, call_next):
        reply = call_next(message, context)
        said = records.fields_of(reply.content)
        reply.content[records.HEADER] = records.header_record({**said, "patches": patches})
        return reply

    grid, _ = run_with([], before=[lying], down=None)
    assert grid.counts["patch"] == 0 and not grid.counts["refused"]


def spoiled(change):
    """A mod in front of ours, which changes the header of patches."""

    def mod(message, context, call_next):
        fields = records.fields_of(message.content)
        if fields["kind"] == "patch":
            text = json.dumps({**fields, **change(fields)})
            message.content[records.HEADER] = ConfigRecord({"header": text})
        return call_next(message, context)

    return mod


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: {"lengths": [fields["lengths"][0] - 1]},
        lambda fields: {"lengths": [fields["lengths"][0] + 1, -1]},
        lambda fields: {"lengths": [float(fields["lengths"][0])]},
        lambda fields: {"lengths": "all"},
        lambda fields: {"lengths": None},
        lambda fields: {"kind": 7},
        lambda fields: {"weights": None},
        lambda fields: {"base": "1"},
        lambda fields: {"version": True},
    ],
)
def test_a_header_that_does_not_fit_is_an_error_of_its_client(change, caplog):
    grid, _ = run_with([], before=[spoiled(change)], down=None)
    assert "the header of the download doesn't fit its frames" in caplog.text
    assert grid.counts["silent"] == 7 * NODES  # all but the first, of the whole model


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: {"base": fields["base"] + 1},
        lambda fields: {"digest": fields["digest"] ^ 1},
        lambda fields: {"layout_id": "0" * 16},
        lambda fields: {"weights": "bfloat16"},
    ],
)
def test_a_patch_that_does_not_fit_is_followed_by_the_whole_model(change):
    seen = []
    grid, _ = run_with(seen, before=[spoiled(change)], down=None)
    assert grid.counts["need_full"] == 4 * NODES and not grid.counts["silent"]
    assert grid.counts["full"] == 5 * NODES
    assert len(seen) == 8 * NODES


def test_bad_options_are_errors_at_once():
    for options in ({"weights": "int4"}, {"bases": -1}):
        with pytest.raises(deltawire.InvalidArgumentError):
            compressed(**options)


@pytest.mark.parametrize(
    "settings, asked, said",
    [
        ({"down": "3lc"}, set(), set()),
        ({"down": None, "bases": 0}, set(), set()),
        ({"down": None}, {"patches"}, {"patches"}),
        ({"down": "3lc", "weights": "bfloat16"}, {"weights"}, set()),
    ],
)
def test_headers_have_new_fields_only_where_they_are_needed(settings, asked, said):
    found = []

    def note(message, context, call_next):
        fields = records.fields_of(message.content)
        reply = call_next(message, context)
        found.append((set(fields), set(records.fields_of(reply.content)) - {"spec"}))
        return reply

    run_with([], before=[note], **settings)
    usual = {"kind", "lengths", "spec", "base", "version", "digest", "round", "accepted", "refused"}
    usual |= {"layout_id", "record", "samples"}
    assert all(fields == (usual | asked, {"version", "round"} | said) for fields in found)
