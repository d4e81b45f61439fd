"""What goes down as lossless patches: the smallest is sent, bit for bit, to those who read them."""

import dataclasses

import deltawire
import numpy as np
import pytest
from deltawire import patches, rounds
from deltawire.rounds import lossless

SHAPES = {"conv": (20, 30), "dense": (40, 500), "bias": (40,), "scale": ()}


def made(seed, size=1.0):
    draw = np.random.default_rng(seed)
    return {k: np.asarray(draw.normal(0, size, s), np.float32) for k, s in SHAPES.items()}


def moved(model, seed, share=0.01):
    """A sparse change, as sparse codecs make it."""
    draw = np.random.default_rng(seed)
    found = {name: array.copy() for name, array in model.items()}
    for array in found.values():
        flat = array.reshape(-1)
        flat[draw.random(flat.size) < share] += np.float32(0.01)
    return found


def same(first, second):
    return all(first[k].tobytes() == second[k].tobytes() for k in SHAPES)


def bfloat16(model):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return {k: torch.from_numpy(a).bfloat16().float().numpy() for k, a in model.items()}


def behind(missed, spec=None, change=moved, share=0.01, reads=1, **options):
    """A broadcast, and a client that has the first of its versions."""
    broadcast = rounds.Broadcast(spec, **{"bases": 8, **options})
    client, model = rounds.Client("fp32"), made(0)
    broadcast.advance(model)
    client.receive(broadcast.download("ann"))
    broadcast.confirm("ann", 1, reads)
    broadcast.confirm("reader", 1, 1)  # so the first version is kept in any case
    for number in range(missed):
        model = change(model, number, share)
        broadcast.advance(model)
    return broadcast, client


@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", [None, "3lc", "topk:k=5%"])
@pytest.mark.parametrize("missed", [1, 2, 5])
def test_the_smallest_is_sent_and_gives_the_servers_bits(missed, spec, weights):
    broadcast, client = behind(missed, spec, weights=weights)
    download = broadcast.download("ann")
    without, _ = behind(missed, spec, weights=weights, bases=0)
    deltas = without.download("ann")
    assert deltas.kind == ("full" if spec is None else "delta")
    first, _ = behind(0, spec, weights=weights)
    old, new = (lossless.packed(b.reference, weights) for b in (first, broadcast))
    patch = lossless.make(old, new, weights)
    least = min(len(patch), sum(map(len, deltas.frames)))
    assert sum(map(len, download.frames)) == least
    assert download.kind == ("patch" if least == len(patch) else "delta")
    assert same(client.receive(download), broadcast.reference)


def test_of_dense_changes_deltas_are_smaller_and_of_rare_ones_patches():
    kinds = [behind(8, "3lc", share=share)[0].download("ann").kind for share in (0.01, 0.001)]
    assert kinds == ["delta", "patch"]


def test_a_patch_that_is_no_smaller_than_the_model_is_not_sent():
    broadcast, _ = behind(1, change=lambda model, seed, share: made(99))
    assert broadcast.download("ann").kind == "full"


@pytest.mark.parametrize("reads", [0, None, True, "1", -1, 1.0, [1]])
def test_a_client_that_does_not_say_that_it_reads_patches_is_sent_none(reads):
    broadcast, client = behind(1, reads=reads)
    download = broadcast.download("ann")
    assert download.kind == "full"
    assert same(client.receive(download), broadcast.reference)
    broadcast, _ = behind(1, reads=2)  # a newer client reads this format, too
    assert broadcast.download("ann").kind == "patch"


def test_a_patch_is_made_once_and_is_one_of_the_format():
    broadcast, _ = behind(1)
    for name in ("bob", "eve"):
        broadcast.confirm(name, 1, 1)
    found = [broadcast.download(name).frames[0] for name in ("ann", "bob", "eve")]
    assert found[0] is found[1] is found[2]
    info = patches.inspect(found[0])
    assert info.elements == sum(array.size for array in made(0).values())


@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
@pytest.mark.parametrize("down", [None, "3lc", "sbc:p=1%"])
def test_partial_participation_gives_the_bits_of_whole_downloads(down, weights):
    """30 rounds in which a third takes part; a client that is always sent the model sees the
    same."""
    draw, kinds = np.random.default_rng(5), set()
    server = rounds.Server(made(0), down=down, weights=weights, bases=8, max_norm=None)
    clients = [rounds.Client("topk:k=2%", rank=rank) for rank in range(9)]
    for _ in range(30):
        server.begin()
        whole = rounds.Client("fp32").receive(server.download("new", full=True))
        for rank in draw.choice(9, 3, replace=False).tolist():
            download = server.download(rank)
            kinds.add(download.kind)
            model = clients[rank].receive(download)
            assert same(model, whole)
            if weights == "bfloat16":
                assert same(model, bfloat16(model))
            change = made(int(draw.integers(1000)), 0.01)
            trained = {name: array + change[name] for name, array in model.items()}
            server.take(rank, clients[rank].reply(trained, 5))
        server.finish()
    assert {"full", "patch" if down is None else "delta"} <= kinds


def test_bfloat16_halves_the_model_and_does_not_add_up_errors():
    server = rounds.Server({"w": np.ones((60, 50), np.float32)}, down=None, weights="bfloat16")
    client, sizes = rounds.Client("fp32"), []
    for _ in range(40):
        server.begin()
        download = server.download("ann")
        sizes.append(sum(map(len, download.frames)))
        model = client.receive(download)
        trained = {"w": model["w"] + np.float32(0.001)}  # an eighth of a unit in the last place
        server.take("ann", client.reply(trained, 1))
        server.finish()
    assert sizes[0] < 2.1 * 3000
    np.testing.assert_allclose(server.model["w"], 1.04, atol=1e-5)


@pytest.mark.parametrize("shape", [(3000,), (10,)])
def test_bfloat16_models_are_smaller_in_small_arrays_too(shape):
    model = {f"w{i}": np.ones(shape, np.float32) for i in range(100)}
    sizes = []
    for weights in ("float32", "bfloat16"):
        broadcast = rounds.Broadcast(None, weights=weights)
        broadcast.advance(model)
        sizes.append(sum(map(len, broadcast.download("ann").frames)))
    assert sizes[0] - sizes[1] >= 100 * shape[0]


def test_references_are_rounded_to_nearest_after_a_delta_too():
    draw = np.random.default_rng(1)
    first, second = (draw.uniform(1, 1.99, 5000).astype(np.float32) for _ in range(2))
    broadcast = rounds.Broadcast("fp32", weights="bfloat16")
    broadcast.advance({"w": first})
    broadcast.advance({"w": second})  # differences of such numbers are exact
    assert broadcast.reference["w"].tobytes() == bfloat16({"w": second})["w"].tobytes()


def test_a_refused_client_is_sent_patches():
    server = rounds.Server(made(0), down=None, max_norm=5.0)
    ann, eve, kinds = rounds.Client("topk:k=1%"), rounds.Client("topk:k=1%"), []
    for number in range(3):
        server.begin()
        download = server.download("eve")
        kinds.append(download.kind)
        huge = made(7, 100.0)
        with pytest.raises(deltawire.DeltawireError, match="above max_norm"):
            model = eve.receive(download)
            server.take("eve", eve.reply({k: model[k] + huge[k] for k in SHAPES}, 1))
        model = ann.receive(server.download("ann"))
        change = made(number, 0.01)
        server.take("ann", ann.reply({k: model[k] + change[k] for k in SHAPES}, 1))
        server.finish()
    assert kinds == ["full", "patch", "patch"]


def test_a_codec_keeps_no_bases_by_default():
    """Its deltas are smaller, and each base is a model in memory."""
    for spec, kept in (("3lc", 0), (None, 1)):
        broadcast, _ = behind(1, spec, bases=None)
        assert len(broadcast._bases._models) == kept


def test_a_minus_zero_does_not_keep_clients_out():
    for weights in ("float32", "bfloat16"):
        start = {"w": np.full(300, -0.0, np.float32), "tiny": np.full(300, -1e-45, np.float32)}
        server = rounds.Server(start, down=None, weights=weights)
        server.begin()
        assert not np.signbit(rounds.Client("fp32").receive(server.download("ann"))["w"]).any()
    broadcast = rounds.Broadcast("fp32", weights="bfloat16")  # and none comes of rounding
    broadcast.advance({"w": np.zeros(300, np.float32)})
    broadcast.advance({"w": np.full(300, -1e-45, np.float32)})
    rounds.Client("fp32").receive(broadcast.download("ann"))


def test_what_bfloat16_does_not_hold_is_named():
    broadcast = rounds.Broadcast(None, weights="bfloat16")
    broadcast.advance(made(0))
    huge = {**made(0), "dense": np.full(SHAPES["dense"], 3.4e38, np.float32)}
    with pytest.raises(deltawire.DeltawireError, match="'dense' has values beyond") as caught:
        broadcast.advance(huge, also="another")
    assert caught.value.code == "NotFinite"
    assert (broadcast.version, broadcast.layout.also) == (1, "")


@pytest.mark.parametrize(
    "options, words",
    [
        ({"weights": "float16"}, "weights='float16' must be 'float32' or 'bfloat16'"),
        ({"bases": -1}, "bases=-1 must be a whole number, 0 or more"),
        ({"bases": True}, "bases=True must be"),
        ({"bases": 1.5}, "bases=1.5 must be"),
    ],
)
def test_bad_arguments_are_named(options, words):
    with pytest.raises(deltawire.InvalidArgumentError, match=words):
        rounds.Server(made(0), **options)


def test_kept_bases_are_bounded_and_only_those_in_use():
    broadcast, model = rounds.Broadcast(None, bases=3), made(0)
    for number in range(12):
        broadcast.advance(model)
        broadcast.confirm(number, broadcast.version, 1)
        model = moved(model, number)
        kept = broadcast._bases._models
        assert list(kept) == list(range(max(1, number - 2), number + 1))
    broadcast.advance(model)
    assert [broadcast.download(n).kind for n in (8, 9, 10, 11)] == ["full"] + 3 * ["patch"]
    assert len(broadcast._bases._patches) == 3
    for number in range(12):  # all have the newest now
        broadcast.confirm(number, broadcast.version, 1)
    broadcast.advance(moved(model, 99))
    assert list(broadcast._bases._models) == [13] and not broadcast._bases._patches


def test_no_base_is_kept_for_clients_that_read_no_patches():
    broadcast = rounds.Broadcast(None)
    broadcast.advance(made(0))
    broadcast.confirm("ann", 1)
    broadcast.advance(moved(made(0), 1))
    assert not broadcast._bases._models


def test_a_client_that_names_old_versions_evicts_nobody_elses():
    broadcast, model = rounds.Broadcast(None, bases=2), made(0)
    for number in range(8):
        broadcast.advance(model)
        broadcast.confirm("ann", broadcast.version, 1)
        for version in range(1, broadcast.version):
            broadcast.confirm(("eve", version), version, 1)
        model = moved(model, number)
    broadcast.advance(model)
    assert broadcast.download("ann").kind == "patch"
    assert len(broadcast._bases._models) == 2


def hostile(download, broadcast):
    patch = download.frames[0]
    other = lossless.make(np.zeros(9, np.float32), np.ones(9, np.float32), "float32")
    old = lossless.packed(made(7), "float32")
    strange = lossless.make(old, lossless.packed(broadcast.reference, "float32"), "float32")
    replace = dataclasses.replace
    return {
        "other weights": (replace(download, frames=(strange,)), "State"),
        "another size": (replace(download, frames=(other,)), "State"),
        "another dtype": (replace(download, weights="bfloat16"), "State"),
        "another digest": (replace(download, digest=download.digest ^ 1), "State"),
        "a later base": (replace(download, base=2), "State"),
        "an earlier version": (replace(download, base=0, version=0), "State"),
        "cut": (replace(download, frames=(patch[:-3],)), "Truncated"),
        "longer": (replace(download, frames=(patch + b"x",)), "Corrupt"),
        "flipped": (replace(download, frames=(patch[:-3] + b"xyz",)), "Corrupt"),
        "empty": (replace(download, frames=(b"",)), "Truncated"),
        "no frame": (replace(download, frames=()), "Corrupt"),
        "two frames": (replace(download, frames=(patch, patch)), "Corrupt"),
        "a kind to come": (replace(download, kind="sketch" * 90), "UnsupportedVersion"),
        "weights to come": (replace(download, weights="float4" * 90), "UnsupportedVersion"),
    }


NAMES = list(hostile(*(lambda b: (b.download("ann"), b))(behind(2)[0])))


@pytest.mark.parametrize("which", NAMES)
def test_a_bad_patch_is_named_and_the_whole_model_helps(which):
    broadcast, client = behind(2)
    download = broadcast.download("ann")
    assert download.kind == "patch"
    before = client.state()
    bad, code = hostile(download, broadcast)[which]
    with pytest.raises(deltawire.DeltawireError) as caught:
        client.receive(bad)
    assert caught.value.code == code and len(str(caught.value)) < 400
    assert code != "State" or "ask the server for the full model" in str(caught.value)
    assert client.state() == before
    assert same(client.receive(broadcast.download("ann", full=True)), broadcast.reference)


def test_a_patch_that_comes_twice_changes_nothing():
    broadcast, client = behind(2)
    download = broadcast.download("ann")
    first = client.receive(download)
    assert same(client.receive(download), first)
    first["dense"][0] = 9  # the caller's own
    assert same(client.receive(download), broadcast.reference)


def test_a_state_takes_patches():
    broadcast, client = behind(2, weights="bfloat16")
    loaded = rounds.Client("fp32")
    loaded.load_state(client.state())
    assert same(loaded.receive(broadcast.download("ann")), broadcast.reference)
