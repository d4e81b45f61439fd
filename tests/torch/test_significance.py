"""What a torch optimizer can see of a gradient: the values, and their way through the hook."""

import ctypes
import logging
import math

import deltawire
import deltawire.torch
import numpy as np
import pytest
import torch
from deltawire.torch import SignificanceSource, significance_of
from models import WIDTH, Net, backward, fingerprint, steps_by, wrapped
from ranks import results
from watched import logged

SHAPE = (13, 17)

# Optimizers with no setting at its default, and every way to use them that is supported.
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.02}),
    "sgd maximize": (torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.02, "maximize": True}),
    "momentum": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.02},
    ),
    "nesterov": (
        torch.optim.SGD,
        {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.02},
    ),
    "adagrad": (
        torch.optim.Adagrad,
        {"lr": 0.05, "lr_decay": 0.1, "eps": 1e-3, "weight_decay": 0.02},
    ),
    "adagrad initial": (
        torch.optim.Adagrad,
        {"lr": 0.05, "initial_accumulator_value": 0.4, "eps": 1e-3, "weight_decay": 0.02},
    ),
    "rmsprop": (
        torch.optim.RMSprop,
        {"lr": 0.004, "alpha": 0.8, "eps": 1e-3, "weight_decay": 0.02},
    ),
    "adam": (
        torch.optim.Adam,
        {"lr": 0.004, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.02},
    ),
    "adam amsgrad": (torch.optim.Adam, {"lr": 0.004, "betas": (0.8, 0.5), "amsgrad": True}),
    "adam tensor lr": (torch.optim.Adam, {"lr": torch.tensor(0.004), "weight_decay": 0.02}),
    "adamw": (
        torch.optim.AdamW,
        {"lr": 0.004, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3},
    ),
}


def numerator(parameter, optimizer):
    """GComp's table 2 in float64, as it is printed, with the moments of the step before."""
    group, state = optimizer.param_groups[0], optimizer.state[parameter]
    theta, lr, decay = parameter.detach().double(), float(group["lr"]), group["weight_decay"]
    if isinstance(optimizer, torch.optim.SGD):
        mu, b = group["momentum"], state.get("momentum_buffer")
        if mu == 0 or (b is None and not group["nesterov"]):
            return theta / lr - decay * theta
        b = torch.zeros_like(theta) if b is None else b.double()
        if group["nesterov"]:
            return ((1 - lr * decay * (1 + mu)) * theta - lr * mu**2 * b) / (lr * (1 + mu))
        return (theta - lr * mu * b) / (lr * (1 - group["dampening"])) - decay * theta
    steps = int(state.get("step", 0))
    if steps == 0 and not group.get("initial_accumulator_value"):
        return torch.zeros_like(theta)
    if isinstance(optimizer, torch.optim.Adagrad):
        lr = lr / (1 + steps * group["lr_decay"])
        return theta * (state["sum"].double().sqrt() + group["eps"]) / lr - decay * theta
    if isinstance(optimizer, torch.optim.RMSprop):
        return theta * (state["square_avg"].double().sqrt() + group["eps"]) / lr - decay * theta
    beta1, beta2 = group["betas"]
    squares = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"].double()
    unit = ((squares / (1 - beta2**steps)).sqrt() + group["eps"]) * (1 - beta1 ** (steps + 1))
    if isinstance(optimizer, torch.optim.AdamW):
        unit, decay = unit * (1 - lr * decay), 0
    moment = lr * beta1 * state["exp_avg"].double()
    return (theta * unit - moment) / (lr * (1 - beta1)) - decay * theta


def trained(name, steps):
    """A parameter and its optimizer after some steps of random gradients."""
    kind, settings = OPTIMIZERS[name]
    generator = torch.Generator().manual_seed(17)
    parameter = torch.nn.Parameter(torch.randn(SHAPE, generator=generator))
    optimizer = kind([parameter], **settings)
    for _ in range(steps):
        parameter.grad = 0.1 * torch.randn(SHAPE, generator=generator)
        optimizer.step()
    return parameter, optimizer


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_values_are_table_2s(name, steps):
    parameter, optimizer = trained(name, steps)
    expected = numerator(parameter, optimizer)
    out = significance_of(optimizer, parameter)
    assert out.shape == parameter.shape and out.dtype == torch.float32
    torch.testing.assert_close(
        out.double(), expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item()
    )
    has_second_moment = name.split()[0] not in ("sgd", "momentum", "nesterov")
    assert bool((out == 0).all()) == (steps == 0 and has_second_moment and "initial" not in name)


@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_device_computes_the_same_bits(name, steps, monkeypatch):
    """torch's operations, forced upon CPU tensors, against the core; also of odd values."""
    parameter, optimizer = trained(name, steps)
    odd = torch.tensor([0.0, -0.0, 1e-45, -1e-39, 3e38, -3e38, float("inf"), float("nan")])
    with torch.no_grad():
        for value in (parameter, *optimizer.state[parameter].values()):
            if torch.is_tensor(value) and value.dim() > 0:
                flat = value.view(-1)
                flat[: odd.numel()] = odd[torch.randperm(odd.numel())]
    for rate in (optimizer.param_groups[0]["lr"], 1e-12, 0.0):
        optimizer.param_groups[0]["lr"] = rate
        core = significance_of(optimizer, parameter)
        with monkeypatch.context() as patch:
            patch.setenv("DELTAWIRE_FORCE_STAGING", "on")
            there = significance_of(optimizer, parameter)
        assert there.numpy().tobytes() == core.numpy().tobytes(), rate


def as_kept_in(dtype, name):
    """A parameter of this dtype, stepped a few times, and the same with all values as float32."""
    found = []
    for kept in (dtype, torch.float32):
        parameter, optimizer = trained(name, 3)
        halved = torch.nn.Parameter(parameter.detach().to(dtype).to(kept))
        state = {
            key: value.to(dtype).to(kept) if torch.is_tensor(value) and value.dim() else value
            for key, value in optimizer.state.pop(parameter).items()
        }
        optimizer.param_groups[0]["params"] = [halved]
        optimizer.state[halved] = state
        found.append((optimizer, halved))
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["nesterov", "adam amsgrad"])
def test_rounding_to_16_bits_hides_more(name, dtype, monkeypatch):
    kept, as_float32 = as_kept_in(dtype, name)
    expected = significance_of(*as_float32) * (65536 if dtype == torch.bfloat16 else 8192)
    assert expected.any()
    assert significance_of(*kept).numpy().tobytes() == expected.numpy().tobytes()
    monkeypatch.setenv("DELTAWIRE_FORCE_STAGING", "on")
    assert significance_of(*kept).numpy().tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_cut_moves_a_parameter_by_two_units_of_its_16_bits_at_most(dtype):
    """PyTorch's own step with a gradient and with what gcomp keeps of it."""
    generator = torch.Generator().manual_seed(3)
    start = (0.05 * (torch.rand(20_000, generator=generator) + 0.5)).to(dtype)
    gradient = (0.1 * torch.randn(20_000, generator=generator)).to(dtype)
    optimizer = torch.optim.SGD([torch.nn.Parameter(start.clone())], lr=0.01)
    seen = significance_of(optimizer, optimizer.param_groups[0]["params"][0])
    spec = f"gcomp:values={'bf16' if dtype == torch.bfloat16 else 'fp16'}"
    file = deltawire.encode(gradient.float().numpy(), spec, significance=seen.numpy())
    assert len(file) < len(gradient)  # half of its 16 bits
    after = []
    for values in (gradient, torch.from_numpy(deltawire.decode(file)).to(dtype)):
        parameter = torch.nn.Parameter(start.clone())
        parameter.grad = values
        torch.optim.SGD([parameter], lr=0.01).step()
        after.append(parameter.detach().view(torch.int16).int())
    assert (after[0] - after[1]).abs().max() in (1, 2)


class Counted:
    """A step count that lies on a GPU."""

    device = torch.device("cuda", 0)


def test_steps_that_a_gpu_counts_are_refused(monkeypatch):
    """To read them the backward pass would wait for it."""
    parameter, optimizer = trained("adam", 1)
    monkeypatch.setattr(torch, "Tensor", (torch.Tensor, Counted))
    optimizer.state[parameter]["step"] = Counted()
    with pytest.raises(deltawire.DTypeError, match=r"steps of .* on cuda:0.*fused=True"):
        SignificanceSource(optimizer)


class OwnSGD(torch.optim.SGD):
    """A subclass, whose step could be anything."""


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (lambda p: torch.optim.LBFGS([p]), "DTypeError", "LBFGS is not supported"),
        (lambda p: OwnSGD([p], lr=0.1), "DTypeError", "OwnSGD is not supported.*subclasses"),
        (lambda p: "adam", "DTypeError", "takes a torch.optim.Optimizer, not str"),
        (lambda p: torch.optim.RMSprop([p], centered=True), "InvalidArg", "centered"),
        (lambda p: torch.optim.RMSprop([p], momentum=0.5), "InvalidArg", "momentum"),
    ],
)
def test_optimizers_that_are_refused(make, kind, says):
    parameter = torch.nn.Parameter(torch.randn(3))
    with pytest.raises(deltawire.DeltawireError, match=says) as caught:
        SignificanceSource(make(parameter))
    assert type(caught.value).__name__.startswith(kind) and "\n" not in str(caught.value)


def test_states_and_parameters_of_other_dtypes_are_refused():
    parameter, optimizer = trained("adam", 1)
    optimizer.state[parameter]["exp_avg_sq"] = optimizer.state[parameter]["exp_avg_sq"].double()
    with pytest.raises(deltawire.DTypeError, match="exp_avg_sq .* is torch.float64"):
        SignificanceSource(optimizer)
    half, optimizer = trained("momentum", 1)
    half.data = half.data.half()
    with pytest.raises(deltawire.DTypeError, match="buffer .* torch.float32 .* torch.float16 of"):
        SignificanceSource(optimizer)
    double = torch.nn.Parameter(torch.randn(3).double())
    with pytest.raises(deltawire.DTypeError, match="the parameter is torch.float64"):
        significance_of(torch.optim.SGD([double], lr=0.1), double)


def test_a_parameter_of_no_group_and_a_rate_of_0_see_everything():
    parameter, optimizer = trained("momentum", 2)
    other = torch.nn.Parameter(torch.randn(4))
    assert torch.equal(significance_of(optimizer, other), torch.zeros(4))
    optimizer.param_groups[0]["lr"] = 0.0
    assert torch.equal(significance_of(optimizer, parameter), torch.zeros(SHAPE))


class Recorder:
    """Stands in front of a hook's session and reads the significance of what is submitted."""

    def __init__(self, session):
        self.session = session
        self.seen = {}
        self.shapes = {}
        self.addresses = []

    def __getattr__(self, name):
        return getattr(self.session, name)

    def submit(self, tensors, step, timeout_ms, callback):
        for name, _, _, shape, dtype, address in tensors:
            assert dtype == "float32"
            self.shapes[name] = shape
            self.addresses.append(address)
            if address == 0:
                self.seen[name] = None
            else:
                memory = (ctypes.c_float * math.prod(shape)).from_address(address)
                self.seen[name] = np.array(memory, dtype=np.float32)
        self.session.submit(tensors, step, timeout_ms, callback)


class ConvNet(Net):
    """With a convolution whose memory is not in the order of its shape."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1).to(memory_format=torch.channels_last)

    def forward(self, x):
        image = x.view(-1, 2, 8, WIDTH // 16).to(memory_format=torch.channels_last)
        return super().forward(x) + self.conv(image).mean(dim=(1, 2, 3)).unsqueeze(1)


def recorded_steps(rank, world_size, report, name):
    model = wrapped(ConvNet())
    parameters = dict(model.module.named_parameters())
    left_out = parameters["layers.3.0.bias"]
    kind, settings = OPTIMIZERS[name]
    optimizer = kind([p for p in parameters.values() if p is not left_out], **settings)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    hook = deltawire.torch.register(model, "direct(gcomp)", optimizer=optimizer, min_elements=0)
    recorder = hook._session = Recorder(hook._session)
    for step in range(4):
        expected = {key: significance_of(optimizer, p).numpy() for key, p in parameters.items()}
        recorder.seen.clear()
        backward(model, rank, step)
        assert recorder.seen.keys() == expected.keys()
        assert recorder.seen.pop("layers.3.0.bias") is None
        shapes = {key: tuple(p.shape) for key, p in parameters.items()}
        shapes["conv.weight"] = (parameters["conv.weight"].numel(),)  # not row-major
        assert recorder.shapes == shapes
        for key, seen in recorder.seen.items():
            values = expected[key]
            if key == "conv.weight":  # its gradient lies in memory as channels_last does
                values = values.transpose(0, 2, 3, 1)
            assert seen.tobytes() == values.tobytes(), f"{key} in step {step}"
            assert step == 0 or values.any()
        optimizer.step()
        schedule.step()
    buckets = hook.metrics()["buckets"]
    assert buckets > 1, "one bucket only: nothing was tested"
    hook.close()
    return fingerprint(model), len(set(recorder.addresses))


@pytest.mark.parametrize("name", ["sgd", "momentum", "adagrad", "adam amsgrad"])
def test_the_hook_hands_on_what_the_optimizer_can_see(name):
    (first, addresses), (second, _) = results(recorded_steps, 2, name)
    assert first == second
    # Of 15 tensors, in the first step's one bucket and in the later ones; memory is used again.
    assert addresses <= 2 * 15 + 1


def bytes_and_gaps(rank, world_size, report, pattern, dtype):
    """Bytes of ten steps with and without the optimizer, and what cutting did to the weights."""
    weights, sent = {}, {}
    for known in (False, True):
        model = wrapped(Net(dtype=dtype))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        given = {"optimizer": optimizer} if known else {}
        hook = deltawire.torch.register(model, f"{pattern}(gcomp)", **given)
        steps_by(optimizer, model, rank, range(10))
        sent[known] = hook.metrics()["total_bytes_sent"]
        weights[known] = torch.cat([p.detach().flatten().float() for p in model.parameters()])
        digest = fingerprint(model)
        hook.close()
    gap = (weights[True] - weights[False]).norm() / weights[False].norm()
    return sent, gap.item(), digest


@pytest.mark.parametrize(
    ("pattern", "dtype", "share", "most"),
    [
        ("direct", torch.float32, 0.9, 1e-6),
        ("ring", torch.float32, 0.9, 1e-6),
        ("direct", torch.bfloat16, 0.5, 2**-7),
    ],
)
def test_knowing_the_optimizer_saves_bytes_and_not_the_weights(pattern, dtype, share, most):
    ranks = results(bytes_and_gaps, 2, pattern, dtype)
    assert len({digest for _, _, digest in ranks}) == 1
    for sent, gap, _ in ranks:
        print(f"{pattern}: {sent[False]} bytes, {sent[True]} with the optimizer, gap {gap:.1e}")
        assert sent[True] < share * sent[False]
        assert 0 < gap < most


def refusals(rank, world_size, report):
    caught = []
    model = wrapped(Net())
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    others = torch.optim.SGD([torch.nn.Parameter(torch.randn(3))], lr=0.1)
    mixed = own if rank == 0 else torch.optim.Adam(model.parameters())
    for spec, optimizer in [
        ("int8", own),
        ("3lc", others),
        ("direct(gcomp:cut=18)", own),
        ("direct(gcomp)", others),
        ("direct(gcomp)", torch.optim.Rprop(model.parameters())),
        ("direct(gcomp)", mixed),
    ]:
        try:
            deltawire.torch.register(model, spec, optimizer=optimizer)
        except deltawire.DeltawireError as error:
            caught.append((type(error).__name__, str(error)))
    hook = deltawire.torch.register(model, "direct(gcomp)", optimizer=own)
    backward(model, rank, 0)
    own.step()
    if rank == 1:  # a setting that becomes wrong in training ends it on every rank, with the reason
        own.param_groups[0]["lr"] = -1.0
    with pytest.raises(RuntimeError, match="lr=-1"):
        backward(model, rank, 1)
    caught.append((type(hook.last_error).__name__, str(hook.last_error)))
    hook.close()
    return caught


def test_registrations_that_are_refused():
    for rank, caught in enumerate(results(refusals, 2)):
        expected = [
            ("InvalidArgumentError", "optimizer= has no effect with 'int8'; leave it out, or use"),
            ("InvalidArgumentError", "optimizer=SGD holds none of the model's parameters"),
            ("InvalidArgumentError", "optimizer= has no effect with 'direct(gcomp:cut=18)'"),
            ("InvalidArgumentError", "optimizer=SGD holds none of the model's parameters"),
            ("DTypeError", "Rprop is not supported"),
            ("DeltawireError", "optimizer=Adam"),
            ("InvalidArgumentError" if rank == 1 else "DeltawireError", "lr=-1"),
        ]
        for (kind, text), (expected_kind, says) in zip(caught, expected, strict=True):
            assert kind == expected_kind and says in text and "\n" not in text


def warned(rank, world_size, report):
    records = logged(logging.WARNING)
    model = wrapped(Net())
    deltawire.torch.register(model, "direct(gcomp)").close()
    return records


def test_a_codec_that_could_cut_warns_where_it_cant():
    records, silent = results(warned, 2)
    assert any("nothing is cut" in record for record in records), records
    assert not any("nothing is cut" in record for record in silent), "every rank says so"
