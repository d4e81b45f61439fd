"""Buckets that go through memory of the hook's own, as those of GPUs do. There is none here: the
same way is forced upon CPU tensors."""

import contextlib
import threading
import time
import types

import deltawire.torch
import pytest
import torch
from deltawire.errors import DeltawireError, InvalidArgumentError
from deltawire.torch.core import abort, arguments
from deltawire.torch.core.device.staging import Staging, is_forced
from models import Net, batch, fingerprint, train_step, train_steps, wrapped
from ranks import AT_ONCE, results
from watched import Watched

STEPS = 3


@pytest.fixture
def forced(monkeypatch):
    monkeypatch.setenv("DELTAWIRE_FORCE_STAGING", "on")


def test_the_switch_is_on_or_off(monkeypatch):
    monkeypatch.setenv("DELTAWIRE_FORCE_STAGING", "")
    assert not is_forced()
    monkeypatch.setenv("DELTAWIRE_FORCE_STAGING", "1")
    with pytest.raises(InvalidArgumentError, match='"1" is neither "on" nor "off"'):
        is_forced()


def trained(rank, world_size, report, force, spec):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_FORCE_STAGING", force)
        model = wrapped(Net(), gradient_as_bucket_view=True)
        hook = deltawire.torch.register(model, spec)
    watched = hook._session = Watched(hook._session)
    train_steps(model, rank, range(STEPS))
    gradients = {parameter.grad.data_ptr() for parameter in model.parameters()}
    hook.close()
    left = staging_threads()
    in_place = bool(gradients & watched.addresses)
    buckets = hook.step_records[-1]["buckets"]
    return fingerprint(model), in_place, watched.threads, left, buckets


def test_staged_gradients_are_the_same():
    for spec in ("3lc", "ring(gcomp)"):
        plain, staged = results(trained, 2, "off", spec), results(trained, 2, "on", spec)
        assert {each[0] for each in plain + staged} == {plain[0][0]}
        assert all(in_place for _, in_place, *_ in plain)
        for _, in_place, threads, left, buckets in staged:
            assert not in_place and threads == {"deltawire-staging"} and not left and buckets > 1


def dropped(rank, world_size, report):
    """(hooks, threads) that are left of three models whose hooks nobody closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_FORCE_STAGING", "on")
        for _ in range(3):
            model = wrapped(Net())
            deltawire.torch.register(model, "fp32")
            train_step(model, rank, 0)
            del model
    end = time.monotonic() + AT_ONCE
    while len(staging_threads()) > 1 and time.monotonic() < end:
        time.sleep(0.01)
    return len(abort._watcher.hooks()), len(staging_threads())


def staging_threads():
    return [each.name for each in threading.enumerate() if "staging" in each.name]


def test_models_that_are_dropped_leave_no_thread():
    """It kept the last bucket, which kept the hook."""
    for hooks, threads in results(dropped, 2):
        assert hooks <= 1 and threads <= 1


def broken(rank, world_size, report):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_FORCE_STAGING", "on")
        model = wrapped(Net())
        hook = deltawire.torch.register(model, "fp32", timeout=20)
    train_step(model, rank, 0)

    class Broken(Watched):
        def submit(self, *_):
            raise OSError("the host is full")

    if rank == 1:
        hook._session = Broken(hook._session)
    with pytest.raises(RuntimeError, match="the host is full"):
        train_step(model, rank, 1)
    hook.close()
    return type(hook.last_error).__name__, hook.last_error.suspect


def test_an_error_of_the_thread_reaches_backward_on_every_rank():
    assert results(broken, 2) == [("DeltawireError", 1)] * 2


def test_a_copy_that_never_ends_is_an_error(forced):
    staging, causes, over = Staging(0.05, rank=3), [], threading.Event()
    staging._copied = lambda host, buffer: types.SimpleNamespace(query=lambda: False)

    def failed(cause):
        causes.append(cause)
        over.set()

    staging.load(0, torch.ones(4), lambda host: pytest.fail("it was not there"), failed)
    assert over.wait(20)
    assert isinstance(causes[0], DeltawireError) and causes[0].code == "Timeout"
    assert causes[0].suspect == 3
    staging.close()


def test_buckets_stay_in_order_and_keep_their_memory(forced):
    staging, seen = Staging(20), []
    for _ in range(2):
        for index in range(3):
            bucket = torch.full((5,), float(index))
            staging.load(index, bucket, seen.append, pytest.fail)
    staging.close()  # after what it has been given
    staging.close()
    assert [host[0].item() for host in seen] == [0, 1, 2, 0, 1, 2]
    assert [host.data_ptr() for host in seen[:3]] == [host.data_ptr() for host in seen[3:]]
    for dtype in (torch.float32, torch.bfloat16):
        other = torch.zeros(6, dtype=dtype)
        staging.load(1, other, seen.append, pytest.fail)  # DDP has rebuilt its buckets
        staging.close()
        assert seen[-1].shape == (6,) and seen[-1].dtype == dtype
        seen[-1].fill_(3)
        staging.store(1, other)
        assert other.tolist() == [3] * 6


def test_all_buckets_share_one_block_also_when_they_are_cut_anew(forced):
    """Each kept memory of its own, and after DDP had cut them anew of another size again: pinned
    memory that torch keeps forever, up to 3.3 times the gradients."""
    staging, seen = Staging(20, 4 * 5000), []
    for cut in ((1000, 4000), (4000, 1000), (2000, 2000, 1000)):
        for index, count in enumerate(cut):
            staging.load(index, torch.full((count,), 1.0 + index), seen.append, pytest.fail)
    staging.close()
    blocks = {each.untyped_storage().data_ptr() for each in seen}
    assert len(blocks) == 1
    assert seen[0].untyped_storage().nbytes() < 4 * 5000 + 20_000
    last = seen[-3:]  # of one step: none lies over another
    assert [each.unique().tolist() for each in last] == [[1.0], [2.0], [3.0]]
    staging.load(0, torch.zeros(6000), seen.append, pytest.fail)  # more than was said
    staging.close()
    assert seen[-1].shape == (6000,)


def scaled(rank, world_size, report):
    """When the scale is asked for, of a model whose buckets are staged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_FORCE_STAGING", "on")
        model, when = wrapped(Net()), []
        hook = deltawire.torch.register(
            model, "3lc", scaler=lambda: when.append(where[0]) or 2.0 ** len(when)
        )
    where = ["forward"]
    for step in range(STEPS):
        with model.no_sync():
            loss_of(model, rank, step, where)
        loss_of(model, rank, step, where)
    hook.close()
    return when, hook.last_error


def loss_of(model, rank, step, where):
    where[0] = "forward"
    x, y = batch(rank, step)
    loss = (model(x) - y).square().mean()
    where[0] = "backward"
    loss.backward()


def test_a_staged_models_scale_is_asked_for_before_the_forward_pass():
    """A GradScaler's lies on the GPU: asked for in backward, it waits for all of it."""
    assert results(scaled, 2) == [(["forward"] * STEPS, None)] * 2


class OfGpus:
    """A process group of GPUs alone."""

    _device_types = (torch.device("cuda"),)

    def __init__(self, bound=None):
        self.bound_device_id = bound


def test_a_group_of_gpus_gathers_from_the_models_own():
    """torch's current device is 0 on every rank that never said otherwise."""
    second = torch.device("cuda", 1)
    assert arguments.device_of(OfGpus(), second) == second
    assert arguments.device_of(OfGpus(second), torch.device("cpu")) == second
    assert arguments.device_of(OfGpus(second)) == second


def test_only_tensors_of_known_devices_are_taken():
    with pytest.raises(TypeError, match="'w' is on the device \"meta\".*to_empty"):
        arguments.check_parameter("w", torch.nn.Parameter(torch.zeros(3, device="meta")))


def test_a_cuda_graph_that_is_being_captured_is_refused(monkeypatch):
    """On the bucket's device, whichever is the current one."""
    second, current = torch.device("cuda", 1), []

    @contextlib.contextmanager
    def made_current(device):
        current.append(device)
        yield
        current.remove(device)

    monkeypatch.setattr(torch.cuda, "device", made_current)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: current == [second])
    on_gpu = types.SimpleNamespace(device=second)
    with pytest.raises(DeltawireError, match="CUDA graph is being captured") as caught:
        Staging(1.0).load(0, on_gpu, pytest.fail, pytest.fail)
    assert caught.value.code == "State"
    Staging(1.0).load(0, torch.ones(3), lambda host: None, pytest.fail)
