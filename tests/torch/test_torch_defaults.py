"""Programs that set another default dtype or device of torch's: every way to train gives the same
bits, and memory that the core gets is what it is said to be."""

import contextlib
import functools

import deltawire
import deltawire.torch
import numpy as np
import pytest
import torch
from deltawire import _core
from host_twin import LIBRARY, HostTwin
from models import Net, wrapped
from ports import kept_port
from ranks import results
from served import staged
from sharded import IS_SUPPORTED, Uneven, cut, mesh_of
from sharded import fingerprint as fingerprint_of_rows
from test_auto import TRIED, believe_in_a_slow_link, measured

TOKEN = "a secret of the tests, of no special length"
DEFAULTS = [(torch.float32, "cpu"), (torch.bfloat16, "cpu"), (torch.float32, "meta")]
STEPS = 4


@contextlib.contextmanager
def defaults(dtype, device):
    torch.set_default_dtype(dtype)
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def bits(model):
    return b"".join(each.detach().numpy().tobytes() for each in model.parameters())


def backward(model, rank, step, width=64):
    """Of inputs that depend on no default."""
    values = np.random.default_rng(10 * rank + step).standard_normal((8, width), np.float32)
    model.zero_grad()
    model(torch.from_numpy(values)).square().mean().backward()


def by_ddp(rank, within, spec, momentum=0.0, steps=STEPS, find_unused_parameters=False, **options):
    model = wrapped(Net(find_unused_parameters), find_unused_parameters=find_unused_parameters)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
    if options.pop("optimizer", False):
        options["optimizer"] = sgd
    with within:
        hook = deltawire.torch.register(model, spec, **options)
        for step in range(steps):
            backward(model, rank, step)
            sgd.step()
        norm = hook.explain().total.residual_norm if spec == "3lc" else 0.0
        hook.close()
    return bits(model), norm


def by_auto(rank, within):
    """All phases until it compresses, on a link that is slow as it believes."""
    believe_in_a_slow_link(watched=5, halves=True)
    return by_ddp(rank, within, "auto", steps=measured() + TRIED + 12)


def take_rounds(model, sgd, trainer, rank):
    for step in range(2 * STEPS):
        backward(model, rank, step)
        sgd.step()
        trainer.step()


def by_rounds(rank, within, spec, **options):
    model = Net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with within:
        trainer = deltawire.torch.LocalSteps(model, sgd, spec, steps=2, **options)
        take_rounds(model, sgd, trainer, rank)
        state = trainer.state_dict()
        trainer.load_state_dict(state)
        trainer.close()
    return bits(model)


def by_elastic_rounds(rank, within, port):
    model = Net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    options = {"address": f"127.0.0.1:{port}", "token": TOKEN, "rank": rank, "world_size": 2}
    with (
        within,
        deltawire.torch.ElasticLocalSteps(model, sgd, "3lc", steps=2, **options) as trainer,
    ):
        take_rounds(model, sgd, trainer, rank)
    return bits(model)


def by_server(rank, within, is_staged):
    """A worker's parameter `extra` has no gradient in every second step."""
    model = Net(sometimes=True)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    with within, staged(is_staged):
        server = deltawire.torch.ParameterServer(model, sgd, "3lc", servers=1)
        if server.serves:
            server.serve()
        else:
            for step in range(STEPS):
                backward(model, rank, step)
                server.step()
            server.wait()
        server.close()
    return bits(model)


def by_shards(rank, within):
    model = cut(Uneven(), mesh_of(2, 1))
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    with within:
        hook = deltawire.torch.register(model, "3lc", min_elements=8, nonfinite="pass")
        for step in range(STEPS):
            backward(model, rank, step, 16)
            sgd.step()
        finite = [each["finite"] for each in hook.step_records]
        hook.close()
    return fingerprint_of_rows(model), finite


def doors(ports):
    """By name, what takes (rank, a context in which to train)."""
    nesterov = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
    made = {
        "DDP": functools.partial(by_ddp, spec="3lc"),
        "DDP, a codec with an optimizer": functools.partial(
            by_ddp, spec="gcomp", momentum=0.9, optimizer=True
        ),
        "DDP, a late codec": functools.partial(
            by_ddp, spec="topk:k=10%", momentum=0.9, optimizer=True
        ),
        "DDP, parameters without a gradient": functools.partial(
            by_ddp, spec="powersgd:rank=2", find_unused_parameters=True
        ),
        "auto": by_auto,
        "LocalSteps": functools.partial(by_rounds, spec="topk:k=10%", outer=nesterov),
        "ElasticLocalSteps": lambda rank, within: by_elastic_rounds(rank, within, next(ports)),
        "ParameterServer": functools.partial(by_server, is_staged=False),
        "ParameterServer, staged": functools.partial(by_server, is_staged=True),
    }
    if LIBRARY.is_file():
        made["DDP, twins"] = functools.partial(by_ddp, spec="3lc", twins=HostTwin)
    if IS_SUPPORTED:
        made["FSDP2"] = by_shards
    return made


def train_everywhere(rank, world_size, report, ports):
    by_name = doors(iter(ports))
    return {
        name: [train(rank, defaults(*each)) for each in DEFAULTS] for name, train in by_name.items()
    }


def test_every_way_to_train_under_other_defaults():
    with contextlib.ExitStack() as kept:
        ports = [kept.enter_context(kept_port()) for _ in DEFAULTS]
        ranks = results(train_everywhere, 2, ports, timeout=150)
    for found in ranks:
        for name, (usual, *others) in found.items():
            assert [each == usual for each in others] == [True] * 2, name


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_core_refuses_memory_of_another_size(dtype):
    """Of a tensor that is not what it is said to be nothing is touched."""
    values = torch.ones(300, dtype=dtype)
    channel = _core.Channel("fp32", 0, "exact", True, 0)
    at = [("w", values.data_ptr(), values.nbytes, [300], "float32")]
    said = f"tensor 'w' has {values.nbytes} bytes, but 300 elements of float32 take 1200"
    with pytest.raises(deltawire.DeltawireError, match=said) as caught:
        channel.encode(at, 0, 0, 1, 1.0)
    assert caught.value.code == "InvalidArgument"
    good = torch.ones(300)
    message = channel.encode([("w", good.data_ptr(), good.nbytes, [300], "float32")], 0, 0, 1, 1.0)
    with pytest.raises(deltawire.DeltawireError, match=said):
        channel.decode(np.frombuffer(message, np.uint8), at, (0, 0, 1), False, 1.0, 1.0)
    assert bool((values == 1).all())
    keys = np.arange(300, dtype=np.uint32)
    with pytest.raises(deltawire.DeltawireError, match=said):
        _core.PairsAt(
            "w", [1000], keys.ctypes.data, values.data_ptr(), values.nbytes, 300, "float32"
        )
