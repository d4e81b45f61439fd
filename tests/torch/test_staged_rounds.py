"""Rounds of local steps through memory of their own, as those of a model on a GPU. There is none
here: the same way is forced upon CPU tensors."""

import contextlib
import threading
import types

import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from deltawire.errors import DeltawireError
from deltawire.torch.core.device.staging import Staging
from deltawire.torch.local.changes import Changes, device_borders
from host_twin import LIBRARY, HostTwin
from local_rounds import flat_of
from models import Net, fingerprint
from ranks import results
from refusals import raised
from watched import Watched

STEPS = 4
CASES = [
    ("3lc:s=1.75", torch.float32, {"fragments": 3, "overlap": 2, "outer": "nesterov"}),
    ("gather(sbc:p=10%)", torch.float32, {"fragments": 2}),  # with momentum masks
    ("gather(sbc:p=10%)", torch.bfloat16, {}),
    ("fp32", torch.float32, {"delay": 1, "bucket_bytes": 20_000}),
    ("ring(int8)", torch.float32, {}),
    ("topk:k=5%,values=2bit,chunk=64 with decay=0.95", torch.float32, {"mask_momentum": False}),
]


def made(spec, dtype=torch.float32, force="on", **options):
    model = Net().to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_FORCE_STAGING", force)
        trainer = deltawire.torch.LocalSteps(model, optimizer, spec, steps=STEPS, **options)
    return model, optimizer, trainer


def watch(trainer):
    watched = trainer._exchange._session = Watched(trainer._session)
    return watched


def step(model, trainer, rank, number):
    dtype = next(model.parameters()).dtype
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(100 * rank + number)).to(dtype)
    model.zero_grad()
    model(x).square().mean().backward()
    trainer.step()


def rounds(rank, world_size, report, force, twins):
    """Of each case what training leaves, and whether twins had to code something."""
    found = []
    for spec, dtype, options in CASES:
        encodings = HostTwin.encodings
        model, optimizer, trainer = made(spec, dtype, force, twins=twins, **options)
        watched = watch(trainer)
        for number in range(3 * STEPS + 1):
            step(model, trainer, rank, number)
        state = flat_of(trainer)
        trainer.exchange()
        momenta = [s["momentum_buffer"].double().sum().item() for s in optimizer.state.values()]
        masked = [(s["momentum_buffer"] == 0).sum().item() for s in optimizer.state.values()]
        trainer.close()
        left = [each.name for each in threading.enumerate() if "staging" in each.name]
        if (parts := trainer._exchange.choice.parts) is not None:
            changes = trainer._exchange._weights.changes.tensors
            left += [each for each in changes if each.data_ptr() in parts._regions]
        same = model.float() and fingerprint(model), momenta, state["residuals"].tolist()
        sent = trainer.metrics()["total_bytes_sent"]
        coded = HostTwin.encodings > encodings
        found.append(((same, sent), masked, watched.threads, left, coded))
    return found


def test_staged_rounds_are_the_same():
    plain, staged = (results(rounds, 2, force, False) for force in ("off", "on"))
    for ours, theirs in zip(plain, staged, strict=True):
        for (spec, *_), one, other in zip(CASES, ours, theirs, strict=True):
            assert one[:2] == other[:2], spec
            assert any(one[1]) == ("sbc" in spec), "momentum masks"
            assert one[2] == {"MainThread"} and other[2] == {"deltawire-staging"}
            assert not other[3]


@pytest.mark.skipif(not LIBRARY.is_file(), reason="needs target deltawire (C library)")
def test_rounds_that_a_device_codes_are_the_same():
    plain, coded = (results(rounds, 2, "off", twins) for twins in (False, HostTwin))
    for ours, theirs in zip(plain, coded, strict=True):
        for (spec, *_), one, other in zip(CASES, ours, theirs, strict=True):
            assert one[:4] == other[:4], spec
            assert (one[4], other[4]) == (False, True)


def refused(rank, world_size, report):
    texts = []
    for spec, twins in (("3lc with clip=1,decay=0.9", HostTwin), ("int8", True)):
        texts.append(str(raised(deltawire.InvalidArgumentError, made, spec, twins=twins)))
    caught = raised(DeltawireError, made, "int8", twins=HostTwin if rank else False, match="coder")
    return [*texts, caught.code]


@pytest.mark.skipif(not LIBRARY.is_file(), reason="needs target deltawire (C library)")
def test_twins_that_can_not_be_granted_are_refused():
    wanted = ["a device has decay= alone", "twins are for CUDA devices", "Mismatch"]
    for texts in results(refused, 2):
        for text, said in zip(wanted, texts, strict=True):
            assert text in said


def broken(rank, world_size, report):
    """Rank 1's session refuses a bucket, in the thread of copies."""
    model, _, trainer = made("fp32", fragments=2, overlap=1, bucket_bytes=20_000, timeout=20)

    class Broken(Watched):
        def submit(self, *_):
            raise OSError("the host is full")

    if rank == 1:
        trainer._exchange._session = Broken(trainer._session)
    caught = None
    try:
        for number in range(3 * STEPS):
            step(model, trainer, rank, number)
            if rank == 1 and number == 1:
                dist.barrier()  # until the others know, without another call of this one's
    except DeltawireError as error:
        caught = error
        if rank == 0:
            dist.barrier()
    trainer.close()
    state = flat_of(trainer)
    return caught.code, caught.suspect, "the host is full" in str(caught), state["round"]


def test_an_error_of_the_thread_ends_the_round_on_every_rank():
    assert results(broken, 2) == [("Aborted", 1, True, 0)] * 2


# Of a copy, or of work of a device, that doesn't end.
NEVER_THERE = types.SimpleNamespace(query=lambda: False)


def late(rank, world_size, report):
    """Rank 1's changes never get to the CPU."""
    model, _, trainer = made("fp32", timeout=1.0)
    if rank == 1:
        trainer._exchange._staging._copied = lambda host, buffer: NEVER_THERE
    caught = None
    try:
        for number in range(STEPS):
            step(model, trainer, rank, number)
    except DeltawireError as error:
        caught = error
    return caught.suspect, "weight changes was not on the host after 1 s" in str(caught)


def test_changes_that_never_arrive_are_an_error_on_every_rank():
    assert results(late, 2) == [(1, True)] * 2


class Stream:
    """A device's, played on the host."""

    def __init__(self):
        self.followed = []

    def record_event(self):
        return NEVER_THERE

    def wait_stream(self, stream):
        self.followed.append(stream)


def test_a_device_is_waited_for_within_the_timeout(monkeypatch):
    current, gpu = Stream(), torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "current_stream", {gpu: current}.get)
    staging = Staging(0.05, rank=3)
    staging.wait([torch.device("cpu")])
    with pytest.raises(DeltawireError, match=r"cuda:1 was not done.*0\.05 s") as caught:
        staging.wait([torch.device("cpu"), gpu])
    assert (caught.value.code, caught.value.suspect) == ("Timeout", 3)
    staging._streams[gpu] = copies = Stream()
    staging.follow()
    parts = types.SimpleNamespace(device=gpu, stream=Stream())  # it codes where changes are
    Staging(0.05, parts=parts).follow()
    assert current.followed == [copies, parts.stream]


def ordered(rank, world_size, report):
    return [order_of(outer) for outer in (None, "nesterov")]


def order_of(outer):
    """What a round does with the device, played on the host."""
    model, _, trainer = made("fp32", outer=outer, mask_momentum=False)
    staging, weights, seen = trainer._exchange._staging, trainer._weights, []

    def noted(owner, name):
        action = getattr(owner, name)
        return lambda *args: (seen.append(name), action(*args))[1]

    for owner, names in (
        (staging, ("store", "follow", "wait")),
        (weights, ("agreed", "apply_means")),
    ):
        for name in names:
            setattr(owner, name, noted(owner, name))
    for number in range(STEPS):
        step(model, trainer, 0, number)
    seen.append("state")
    trainer.state_dict()
    trainer.close()
    return seen


def test_a_round_waits_for_the_device_where_it_reads_from_it():
    ((plain, outer),) = results(ordered, 1)
    assert plain == ["agreed", "store", "follow", "apply_means", "state", "follow", "wait"]
    wait = ["wait", "agreed", "store", "follow", "wait", "apply_means", "state", "follow", "wait"]
    assert outer == wait


def test_memory_that_another_device_may_still_read_is_waited_for(monkeypatch):
    monkeypatch.setenv("DELTAWIRE_FORCE_STAGING", "on")
    staging, seen = Staging(0.05), []
    staging.load(0, torch.ones(4), seen.append, pytest.fail)
    staging._streams = dict.fromkeys(["first", "second"], Stream())
    staging.load(0, torch.ones(4), seen.append, pytest.fail)  # the same as before
    with pytest.raises(DeltawireError, match="not on the host"):
        staging.load(0, torch.ones(5), seen.append, pytest.fail)
    staging.close()
    assert len(seen) == 2


def test_buckets_of_the_cpu_keep_their_place_among_those_of_a_device():
    staging, seen, arrived = Staging(20), [], threading.Event()
    on_cpu, staged = torch.zeros(3), torch.ones(3)
    staging._is_staged = lambda buffer: buffer is staged
    staging.load(0, on_cpu, seen.append, pytest.fail)
    assert seen[0] is on_cpu, "at once"
    staging.load(1, staged, lambda host: (arrived.wait(20), seen.append(host)), pytest.fail)
    staging.load(2, on_cpu, seen.append, pytest.fail)
    assert len(seen) == 1
    arrived.set()
    staging.close()
    assert seen[1] is not staged and seen[2] is on_cpu


def test_steps_that_begin_on_the_cpu_use_the_same_memory_again():
    """The bucket of a device came after what the step before had left there, in a larger block."""
    staging, seen = Staging(20, host_bytes=4 * 3000), []
    on_cpu, staged = torch.zeros(5), [torch.ones(3000), torch.ones(2000)]
    staging._is_staged = lambda buffer: buffer is not on_cpu
    for _ in range(3):
        staging.load(0, staged[0], seen.append, pytest.fail)  # one fragment
        staging.load(0, on_cpu, seen.append, pytest.fail)  # the other
        staging.load(1, staged[1], seen.append, pytest.fail)
    staging.close()
    places = {each.data_ptr() for each in seen if each is not on_cpu}
    assert len(seen) == 9 and len(places) == 1


def test_means_return_on_the_stream_of_copies(monkeypatch):
    """`follow` waits for that one, and the session's thread has another current stream."""
    monkeypatch.setenv("DELTAWIRE_FORCE_STAGING", "on")
    staging, bucket, within = Staging(20), torch.ones(4), []

    @contextlib.contextmanager
    def returning(buffer):
        staging._hosts[0].fill_(3)
        within.append(buffer)
        yield
        assert buffer.tolist() == [3] * 4

    staging.returning = returning
    staging.load(0, bucket, lambda host: None, pytest.fail)
    staging.store(0, bucket)
    staging.close()
    assert within == [bucket]


def test_a_bucket_is_on_one_device():
    """meta stands for another one."""
    names = ["a.w", "a.b", "b.w", "b.b"]
    parameters = [torch.empty(20, device=on) for on in ("cpu", "meta", "meta", "cpu")]
    changes = Changes(names, parameters, [slice(0, 3), slice(3, 4)], 1000)
    assert [changes.bucket_count(fragment) for fragment in (0, 1)] == [2, 1]
    assert [changes.bucket(0, bucket)[0] for bucket in (0, 1)] == [slice(0, 1), slice(1, 3)]
    assert changes.bucket(0, 1)[1].device.type == "meta"
    assert changes.host_bytes == 4 * (32 + 64)  # each begins at a multiple of 64 bytes
    assert device_borders(names, parameters) == ["a.b", "b.b"]
