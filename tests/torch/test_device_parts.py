"""Training where a device, played on the host, encodes and decodes: parameters, bytes and saved
states are those of the CPU's way."""

import collections
import contextlib
import io
import itertools

import deltawire.torch
import numpy as np
import pytest
import torch
from deltawire.torch.core.checkpoint import kept_of
from deltawire.torch.core.device.parts import DeviceParts
from host_twin import LIBRARY, HostTwin
from models import Net, backward, descend, fingerprint, wrapped
from ranks import AT_ONCE, results, started
from refusals import raised

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason="needs target deltawire (C library)")
STEPS = 3
# Dense and sparse codecs with residuals, one that loses nothing, and rules, in each pattern; which
# codec it is is the core's (src/reduce/device_test.cc).
SPECS = [
    "3lc:s=1.75",
    "gather(topk:k=10%)",
    "direct(sbc:p=10%)",
    "int8",
    "fp8",
    "direct(*bias: bf16, step>=2: fp32, rest 3lc)",
    "gcomp",
    "ring(onebit)",
]
OF_THREE = ["3lc:s=1.75", "gather(3lc)", "gcomp", "ring(onebit)"]


def hooked(spec, twins, dtype=torch.float32, **options):
    model = wrapped(Net().to(dtype))
    return model, deltawire.torch.register(model, spec, twins=twins, **options)


def step_of(model, rank, step, dtype=torch.float32):
    """Its loss is made so that gradients have the model's dtype."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x, y = (torch.randn(8, 64, generator=generator).to(dtype) for _ in range(2))
    model.zero_grad()
    (model(x) - y).square().mean().backward()
    descend(model)


def facts_of(hook, model):
    """What must be the same whoever codes."""
    rank = hook.rank
    records = [(each["bytes_sent"], each["raw_bytes"]) for each in hook.step_records]
    residuals = kept_of(hook.state_dict(), rank, "residuals")
    norms = [(row.bytes_sent, row.residual_norm) for row in hook.explain().rows]
    weights = [each.detach().float().numpy().tobytes() for each in model.parameters()]
    return weights, records, bytes(residuals.numpy()), norms


def trained_both_ways(rank, world_size, report, specs, dtype):
    for spec in specs:
        found = []
        for twins in (False, HostTwin):
            model, hook = hooked(spec, twins, dtype)
            for step in range(STEPS):
                step_of(model, rank, step, dtype)
            found.append(facts_of(hook, model))
            assert hook.explain().coded_on == "cpu"
            hook.close()
        for ours, theirs, what in zip(*found, ("weights", "bytes", "state", "rows"), strict=True):
            assert ours == theirs, f"{spec}, {dtype}: {what}"
    least = STEPS * len(specs) * sum(1 for _ in model.parameters()) // world_size
    assert min(HostTwin.encodings, HostTwin.decodings) > least, "the device had nothing to do"
    return found[0][0]


@pytest.mark.parametrize(("world_size", "specs"), [(2, SPECS), (3, OF_THREE)], ids=["2", "3"])
def test_training_is_the_cpus(world_size, specs):
    values = results(trained_both_ways, world_size, specs, torch.float32)
    assert all(value == values[0] for value in values)


@pytest.mark.parametrize(
    ("dtype", "specs"),
    [
        (torch.bfloat16, ["3lc", "gather(topk:k=5%)", "bf16", "ring(int8)", "gcomp"]),
        (torch.float16, ["fp32", "gather(3lc)", "ring(gcomp)"]),
    ],
)
def test_training_in_16_bits_is_the_cpus(dtype, specs):
    results(trained_both_ways, 2, specs, dtype)


def cut_both_ways(rank, world_size, report, dtype):
    """By the significance to an optimizer that steps all parameters but one."""
    found = []
    for twins in (False, HostTwin):
        model = wrapped(Net().to(dtype))
        stepped = list(model.parameters())[1:]
        adam = torch.optim.Adam(stepped, 1e-4)
        spec = "direct(gcomp)"
        hook = deltawire.torch.register(model, spec, optimizer=adam, twins=twins)
        for step in range(STEPS):
            step_of(model, rank, step, dtype)
            adam.step()
        found.append(facts_of(hook, model))
        hook.close()
    assert found[0] == found[1]
    return [sent for sent, _ in found[0][1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cutting_by_significance_is_the_cpus(dtype):
    for sent in results(cut_both_ways, 2, dtype):
        assert max(sent[1:]) < 0.9 * sent[0], "nothing is known of the first step, much of others"


def failed(rank, world_size, report, cases):
    return [failed_both_ways(rank, *case) for case in cases]


def failed_both_ways(rank, spec, fault):
    """(error, residuals before and after a step that fails, those after it is made again), of both
    ways."""
    found = []
    for twins in (False, HostTwin):
        model, hook = hooked(spec, twins)
        for step in range(2):
            step_of(model, rank, step)
        before = kept_of(hook.state_dict(), rank, "residuals")
        if fault == "abort" and rank == 1:
            hook._session.abort("a fault")
        nan = float("nan") if fault == "nan" and rank == 1 else 1.0
        generator = torch.Generator().manual_seed(1000 * rank + 2)
        x = torch.randn(8, 64, generator=generator)
        model.zero_grad()
        with pytest.raises(deltawire.DeltawireError) as caught:
            (model(x).square().mean() * nan).backward()
        state = hook.state_dict()
        hook.close()
        after = kept_of(state, rank, "residuals")
        assert torch.equal(before, after), "a step that failed has left a trace"
        model, hook = hooked(spec, twins)
        hook.load_state_dict(state)
        for step in range(2, 4):
            step_of(model, rank, step)
        found.append((caught.value.code, str(caught.value), facts_of(hook, model)))
        hook.close()
    return found


def test_a_step_that_fails_leaves_no_trace():
    cases = list(itertools.product(["3lc", "gather(sbc:p=10%)"], ["nan", "abort"]))
    for rank in results(failed, 2, cases):
        for (spec, fault), (by_cpu, on_device) in zip(cases, rank, strict=True):
            assert by_cpu[0] == on_device[0] and by_cpu[2] == on_device[2], (spec, fault)
            assert by_cpu[1] == on_device[1] or fault == "abort", spec


def killed(rank, world_size, report):
    """What is saved before and after a step that a rank's end makes fail."""
    model, hook = hooked("3lc", HostTwin)
    for step in range(3):
        step_of(model, rank, step)
    before = kept_of(hook.state_dict(), rank, "residuals")
    report("training")
    if rank == 1:
        while True:
            pass
    caught = raised(deltawire.DeltawireError, backward, model, rank, 3)
    after = kept_of(hook.state_dict(), rank, "residuals")
    hook.close()
    return caught.suspect, torch.equal(before, after)


def test_a_killed_rank_leaves_no_trace():
    with started(killed, 3) as ranks:
        for rank in range(3):
            ranks.hear(rank)
        ranks.signal(1, 9)
        outcomes = ranks.outcomes([0, 2], timeout=AT_ONCE)
    assert all(outcome.value == (1, True) for outcome in outcomes.values()), outcomes


def passed(rank, world_size, report):
    """Steps with NaN that count for nobody, and a loss scale that changes."""
    found = []
    for twins in (False, HostTwin):
        scale = [1.0]
        model, hook = hooked("3lc", twins, scaler=lambda scale=scale: scale[0])
        for step in range(5):
            scale[0] = (1.0, 1024.0, 1024.0, 512.0, 512.0)[step]
            generator = torch.Generator().manual_seed(1000 * rank + step)
            x = torch.randn(8, 64, generator=generator)
            model.zero_grad()
            nan = float("nan") if step == 2 and rank == 1 else scale[0]
            (model(x).square().mean() * nan).backward()
            finite = all(each.grad.isfinite().all() for each in model.parameters())
            assert finite == (step != 2)
            if finite:
                for parameter in model.parameters():
                    parameter.grad /= scale[0]
                descend(model)
        found.append((facts_of(hook, model), [each["finite"] for each in hook.step_records]))
        hook.close()
    return found


def test_loss_scales_and_steps_that_pass():
    for by_cpu, on_device in results(passed, 2):
        assert by_cpu == on_device
        assert by_cpu[1] == [True, True, False, True, True]


def saved(rank, world_size, report, twins):
    model, hook = hooked("3lc", twins)
    for step in range(3):
        step_of(model, rank, step)
    file = io.BytesIO()
    torch.save(hook.state_dict(), file)
    hook.close()
    return file.getvalue()


def resumed(rank, world_size, report, twins, states):
    model, hook = hooked("3lc", twins)
    hook.load_state_dict([torch.load(io.BytesIO(state)) for state in states])
    step_of(model, rank, 3)
    found = facts_of(hook, model)
    hook.close()
    return found


def test_states_of_either_way_are_loaded_by_either_for_other_ranks():
    states = results(saved, 3, HostTwin)
    assert states == results(saved, 3, False)
    assert results(resumed, 2, False, states) == results(resumed, 2, HostTwin, states)


ONCE = {"allocate": 1, "examine": 1, "publish": 1}
CALLS = {
    "direct(3lc)": ONCE | {"encode": 2, "decode": 4},
    "gather(3lc)": ONCE | {"encode": 1, "decode": 2},
    "ring(int8)": ONCE | {"load": 1, "encode": 2, "decode": 3},
}


def called(rank, world_size, report):
    """How often a device is called for a bucket, once residuals are there."""
    calls = collections.Counter()
    for name in ("allocate", "load", "encode", "decode", "examine", "publish"):
        method = getattr(DeviceParts, name)

        def counted(*arguments, name=name, method=method):
            calls[name] += 1
            return method(*arguments)

        setattr(DeviceParts, name, counted)
    found = {}
    for spec in CALLS:
        model, hook = hooked(spec, HostTwin)
        step_of(model, rank, 0)
        calls.clear()
        step_of(model, rank, 1)
        buckets = hook.step_records[-1]["buckets"]
        found[spec] = {name: count / buckets for name, count in calls.items()}
        hook.close()
    return found


def test_a_bucket_takes_few_calls():
    """Whatever its number of tensors, by two ranks."""
    assert results(called, 2) == [CALLS] * 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_are_scaled_as_float32(dtype):
    values, means = torch.linspace(-1, 3, 50).to(getattr(torch, dtype)), torch.ones(50)
    parts = DeviceParts(torch.device("cpu"), HostTwin, 1.0)
    for memory in (values, means):
        parts.adopt(memory)
    third = np.float32(1 / 3)
    parts.load([(means.data_ptr(), values.data_ptr(), 50, dtype)], float(third))
    assert torch.equal(means, torch.from_numpy(values.float().numpy() * third))


def idle(rank, world_size, report):
    """A layer that only some steps use: zeros on both ranks, and a residual that waits."""
    found = []
    for twins in (False, HostTwin):
        model = wrapped(Net(sometimes=True), find_unused_parameters=True)
        hook = deltawire.torch.register(model, "3lc", twins=twins)
        for step in range(STEPS):
            backward(model, rank, step)
        found.append((facts_of(hook, model), fingerprint(model)))
        hook.close()
    return found


class NeverOver:
    """Of a device that hangs."""

    def record(self, _stream):
        pass

    def query(self):
        return False


def test_a_device_that_hangs_while_residuals_are_read_is_an_error(monkeypatch):
    parts = DeviceParts(torch.device("cpu"), HostTwin, 0.05, rank=3)
    address, empty = parts.allocate(4), torch.empty
    parts.stream = object()  # from here on it is played as a GPU
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", NeverOver)
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory, **kind: empty(*shape, **kind))
    with pytest.raises(deltawire.DeltawireError, match="a copy of residuals was not there") as late:
        parts.download(address, np.zeros(4, np.float32))
    assert (late.value.code, late.value.suspect) == ("Timeout", 3)


def test_a_part_of_zeros_waits():
    for by_cpu, on_device in results(idle, 2):
        assert by_cpu == on_device


REFUSED = {
    "auto": 'twins= is not for "auto"',
    "powersgd:rank=2": "has no way for twins; direct, ring, gather have one",
    "3lc with momentum=0.9": "of what follows 'with', a device has decay= alone",
}


def asked_in_vain(rank, world_size, report):
    texts = []
    for spec in REFUSED:
        texts.append(str(raised(deltawire.InvalidArgumentError, hooked, spec, HostTwin)))
    caught = raised(deltawire.InvalidArgumentError, hooked, "3lc", HostTwin, revert="fold")
    texts.append(str(caught))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ValueError) as caught:
        patch.setattr(HostTwin, "takes", lambda self, dtype: dtype == torch.float32)
        hooked("3lc", HostTwin, torch.bfloat16)
    texts.append(str(caught.value))
    return [*texts, str(raised(deltawire.InvalidArgumentError, hooked, "3lc", True))]


def test_what_can_not_be_granted_is_refused():
    first, second = results(asked_in_vain, 2)
    assert first == second
    wanted = [*REFUSED.values(), "revert='fold' is for the CPU"]
    wanted += ["takes no tensors of torch.bfloat16", "twins are for CUDA devices"]
    for text, said in zip(wanted, first, strict=True):
        assert text in said


def of_two_minds(rank, world_size, report):
    caught = raised(deltawire.DeltawireError, hooked, "3lc", HostTwin if rank else False)
    return caught.code, str(caught)


def test_ranks_must_code_alike():
    for code, text in results(of_two_minds, 2):
        assert code == "Mismatch" and "coder" in text
