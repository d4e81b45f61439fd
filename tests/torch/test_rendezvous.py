"""How ranks find each other: what crosses the process group, secrets, ports, limits."""

import json
import os
import pickle
import resource
import struct

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from deltawire import DeltawireError, arguments
from deltawire.torch.core import bootstrap
from hypothesis import given
from hypothesis import strategies as st
from models import Net, train_step, wrapped
from ports import kept_ports, number_of
from ranks import attempted, results, started
from refusals import raised

SECRET = "correct horse battery staple"


def record(**changes):
    usual = {
        "settings": "spec=3lc",
        "endpoint": ("127.0.0.1", 29600),
        "token": b"\x02" * 32,
        "proof": b"\x01" * 32,
    }
    return bootstrap.RegistrationRecord(**{**usual, **changes})


@pytest.mark.parametrize(
    "one",
    [
        record(),
        record(endpoint=("fe80::1%eth0", 65535)),
        record(endpoint=None, problem="no such interface", proof=None),
        record(settings="é" * 512),
        bootstrap.RegistrationRecord(),
    ],
)
def test_a_record_comes_back(one):
    data = bootstrap.packed(one)
    assert len(data) == len(bootstrap.packed(record()))
    assert bootstrap.unpacked(data, 0) == one


def with_fields(**changes):
    data = bootstrap.packed(record())
    (length,) = struct.unpack_from("<I", data, 4)
    fields = json.loads(data[8 : 8 + length])
    fields.update(changes)
    fields = {name: value for name, value in fields.items() if value != "absent"}
    text = json.dumps(fields).encode()
    return (b"DWOF" + struct.pack("<I", len(text)) + text).ljust(len(data), b"\0")


def with_text(text):
    return (b"DWOF" + struct.pack("<I", len(text)) + text).ljust(8192, b"\0")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(8192),
        pickle.dumps({"settings": ""}).ljust(8192, b"\0"),
        b"DWOX" + with_fields()[4:],
        b"DWOF" + struct.pack("<I", 8185) + with_fields()[8:],
        b"DWOF" + struct.pack("<I", 2**32 - 1) + with_fields()[8:],
        with_text(b""),
        with_text(b"[]"),
        with_text(b"[" * 8000),
        with_text(b"\xff\xfe"),
        with_text(b"9" * 8000),
        with_text(b"NaN"),
        with_fields(settings="absent"),
        with_fields(settings=None),
        with_fields(settings="x" * 1025),
        with_fields(host_name=7),
        with_fields(host_name="x" * 256),
        with_fields(endpoint="absent"),
        with_fields(endpoint="127.0.0.1:5"),
        with_fields(endpoint=["127.0.0.1"]),
        with_fields(endpoint=["127.0.0.1", 5, 6]),
        with_fields(endpoint=["example.org", 5]),
        with_fields(endpoint=[2130706433, 5]),
        with_fields(endpoint=["127.0.0.1", 0]),
        with_fields(endpoint=["127.0.0.1", 65536]),
        with_fields(endpoint=["127.0.0.1", True]),
        with_fields(endpoint=["127.0.0.1", 5.0]),
        with_fields(problem=["a"]),
        with_fields(problem="x" * 1025),
        with_fields(token="absent"),
        with_fields(token=None),
        with_fields(token="ab" * 31),
        with_fields(token="xy" * 32),
        with_fields(proof="absent"),
        with_fields(proof=""),
        with_fields(proof=5),
    ],
)
def test_what_is_no_offer_is_refused(data):
    caught = raised(DeltawireError, bootstrap.unpacked, data, 3, match="rank 3 sent")
    assert (caught.code, caught.suspect) == ("Corrupt", 3)
    assert str(caught).isprintable()


def test_fields_of_a_later_version_are_no_harm():
    assert bootstrap.unpacked(with_fields(colour="red"), 0) == bootstrap.unpacked(with_fields(), 0)


def test_texts_of_others_are_one_printable_line():
    found = bootstrap.unpacked(with_fields(problem="a\nb\x1b[2J\u202e\ud800"), 0)
    assert found.problem == "a b [2J ?"


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_give_an_offer_or_an_error(data, framed):
    data = with_text(data) if framed else data.ljust(8192, b"\0")
    try:
        bootstrap.unpacked(data, 1)
    except DeltawireError as error:
        assert error.code == "Corrupt"


def trap_pickle(monkeypatch):
    def trapped(*_arguments, **_options):
        raise AssertionError("something from the network was unpickled")

    for name in ("load", "loads", "Unpickler", "_Unpickler", "_load", "_loads"):
        monkeypatch.setattr(pickle, name, trapped)
    monkeypatch.setattr(dist.distributed_c10d, "_unpickler", trapped)


def meet_without_pickle(rank, world_size, report):
    model, other = wrapped(Net()), Net()
    with pytest.MonkeyPatch.context() as monkeypatch:
        trap_pickle(monkeypatch)
        with pytest.raises(AssertionError, match="unpickled"):
            dist.all_gather_object([None] * world_size, "the trap works")
        dist.barrier()
        deltawire.torch.register(model, "3lc").close()
        trainer = deltawire.torch.LocalSteps(
            other, torch.optim.SGD(other.parameters(), lr=0.1), steps=1, reducer="sbc"
        )
        trainer.load_state_dict(trainer.state_dict())
        trainer.close()


def test_nothing_from_the_network_is_unpickled():
    results(meet_without_pickle, 2)


def send_garbage(rank, world_size, report):
    model = wrapped(Net())
    if rank == 1:
        bootstrap.packed = lambda _offer: bytes(8192)
    return attempted(lambda: deltawire.torch.register(model, "3lc"))


def test_a_rank_that_sends_garbage_is_named_alike_by_all():
    values = results(send_garbage, 3)
    kind, text, suspect = values[0]
    assert (kind, suspect) == ("DeltawireError", 1) and "rank 1" in text
    assert values == [values[0]] * 3


def register_with(rank, world_size, report, options):
    model = wrapped(Net())
    sent = []
    packed = bootstrap.packed
    bootstrap.packed = lambda record: sent.append(packed(record)) or sent[-1]
    hooks = []
    caught = attempted(
        lambda: hooks.append(deltawire.torch.register(model, "3lc", **options[rank]))
    )
    for hook in hooks:
        train_step(model, rank, 0)
        hook.close()
    return caught, sent[0]


def outcomes_with(*options):
    return results(register_with, len(options), options)


def test_a_secret_is_not_sent():
    for caught, sent in outcomes_with({"token": SECRET}, {"token": SECRET.encode()}):
        assert caught is None
        assert SECRET.encode() not in sent and SECRET.encode().hex().encode() not in sent


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"token": "x" * 16}, "rank 1 has another token than rank 0"),
        ({}, "rank 0 has a token of its own and rank 1 has none"),
    ],
)
def test_another_secret_is_named_at_once(second, says):
    (first, _), (other, _) = outcomes_with({"token": SECRET}, second)
    assert first[0] == "DeltawireError" and says in first[1] and first[2] == 1
    assert other[0] == "DeltawireError" and "DELTAWIRE_TOKEN" in other[1] and other[2] == 0


def test_without_the_secret_the_gather_does_not_give_the_token():
    """Who saw every record still needs the secret; and two jobs of one secret have two tokens."""
    records = [record(token=b"\x05" * 32), record()]
    seen = []
    mesh = deltawire.session.registration_record._core
    try:

        class Recorder:
            def Mesh(self, rank, endpoints, token, settings):
                seen.append(token)

        deltawire.session.registration_record._core = Recorder()
        for secret in (None, b"a" * 16, b"b" * 16):
            bootstrap.mesh_of(records, 0, secret)
        records[0].token = b"\x06" * 32
        bootstrap.mesh_of(records, 0, b"a" * 16)
    finally:
        deltawire.session.registration_record._core = mesh
    assert seen[0] == b"\x05" * 32 and len(set(seen)) == 4
    assert all(len(token) == 32 for token in seen)


@pytest.mark.parametrize("bad", ["short", b"x" * 15, 16 * [1], 12345678901234567890])
def test_a_bad_secret_is_refused(bad):
    caught = raised(deltawire.InvalidArgumentError, arguments.secret, bad, match="16 bytes")
    assert "short" not in str(caught), "a secret has no place in a message"


def test_the_environment_gives_secret_and_port(monkeypatch):
    monkeypatch.delenv("DELTAWIRE_TOKEN", raising=False)
    monkeypatch.delenv("DELTAWIRE_PORT", raising=False)
    assert arguments.secret(None) is None and arguments.ports(None) == (0, 0)
    monkeypatch.setenv("DELTAWIRE_TOKEN", SECRET)
    monkeypatch.setenv("DELTAWIRE_PORT", "29600-29699")
    assert arguments.secret(None) == SECRET.encode()
    assert arguments.secret("y" * 16) == b"y" * 16
    assert arguments.ports(None) == (29600, 29699)
    assert arguments.ports(0) == (0, 0)
    monkeypatch.setenv("DELTAWIRE_PORT", "many")
    with pytest.raises(deltawire.InvalidArgumentError, match="DELTAWIRE_PORT='many'"):
        arguments.ports(None)


@pytest.mark.parametrize(
    ("port", "found"),
    [(29600, (29600, 29600)), ("29600", (29600, 29600)), ("1-65535", (1, 65535)), ("7-7", (7, 7))],
)
def test_ports_are_read(port, found):
    assert arguments.ports(port) == found


@pytest.mark.parametrize(
    "bad", ["", "-1", -1, 65536, "1-65536", "0-5", "6-5", "5-", "-5", "5-6-7", 5.0, True, "٥", " 5"]
)
def test_bad_ports_are_refused(bad):
    with pytest.raises(deltawire.InvalidArgumentError, match="29600-29699"):
        arguments.ports(bad)


def test_ranks_share_a_range_of_ports():
    with kept_ports(3) as held:
        held[0].listen()  # taken: the others are for the ranks
        first = number_of(held[0])
        spec = f"{first}-{first + 2}"
        (first_caught, first_sent), (second_caught, second_sent) = outcomes_with(
            {"port": spec}, {"port": spec}
        )
    assert first_caught is second_caught is None
    found = [bootstrap.unpacked(sent, 0).endpoint[1] for sent in (first_sent, second_sent)]
    assert sorted(found) == [first + 1, first + 2]


def test_a_range_that_is_taken_is_named_by_all():
    with kept_ports(2) as held:
        for each in held:
            each.listen()
        first = number_of(held[0])
        spec = f"{first}-{first + 1}"
        (one, _), (other, _) = outcomes_with({}, {"port": spec})
    assert spec in one[1] and "rank 1 could not register" in one[1] and one[2] == 1
    assert spec in other[1] and "taken" in other[1]


def leave(*_arguments):
    raise ZeroDivisionError("the time to connect is spent elsewhere")


def connect_alone(rank, world_size, report, door):
    """Rank 1 registers and never connects."""
    if rank == 1:
        bootstrap.Meeting.connect = leave
    if door == "register":
        model = wrapped(Net())
        return attempted(lambda: deltawire.torch.register(model, "3lc", connect_timeout=2))
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return attempted(
        lambda: deltawire.torch.LocalSteps(
            model, optimizer, steps=1, reducer="sbc", connect_timeout=2.0
        )
    )


@pytest.mark.parametrize("door", ["register", "local steps"])
def test_the_time_to_connect_is_settable(door):
    with started(connect_alone, 2, door) as ranks:
        kind, text, suspect = ranks.outcomes([0])[0].value
    assert kind == "DeltawireError" and suspect == 1
    assert "2000 ms" in text and "rank 1" in text


@pytest.mark.parametrize("bad", [0, -1, "60", float("nan"), 1e9, None])
def test_a_bad_time_to_connect_is_refused(bad):
    with pytest.raises(deltawire.InvalidArgumentError, match="connect_timeout="):
        arguments.timeout_in_ms(bad, "connect_timeout")


def register_with_few_descriptors(rank, world_size, report):
    model = wrapped(Net())
    dist.barrier()
    if rank == 1:
        few = len(os.listdir("/proc/self/fd")) + 4
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    try:
        deltawire.torch.register(model, "3lc")
    except DeltawireError as error:
        return error.code, str(error), error.suspect
    return None


def test_too_few_descriptors_are_named_by_all():
    for code, text, suspect in results(register_with_few_descriptors, 3):
        assert code in ("System", "Aborted") and suspect == 1
        assert "rank 1 needs 12 file descriptors" in text and "ulimit -n" in text
