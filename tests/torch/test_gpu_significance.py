"""What an optimizer with moments on a GPU can see of a gradient: computed there, and bit for bit
what the core says of the same moments on the CPU; so are the means."""

import copy
import itertools

import deltawire.torch
import gpu
import pytest
import torch
from deltawire.torch import significance_of
from gpu import Given, OnDevice, backward, results, same_bits
from models import wrapped

pytestmark = gpu.needs_gpu
STEPS = 5
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "nesterov": lambda parameters: torch.optim.SGD(
        parameters, lr=0.01, momentum=0.9, nesterov=True
    ),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-4),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-4, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
}


def take(optimizer, other, pairs):
    """The other optimizer's weights and moments."""
    with torch.no_grad():
        for ours, theirs in pairs:
            ours.copy_(theirs)
            for key, value in other.state[theirs].items():
                optimizer.state[ours][key] = copy.deepcopy(value).cpu()


def against_the_cpu(rank, world_size, report):
    found = {}
    for name, make in OPTIMIZERS.items():
        model, alone = wrapped(OnDevice()), OnDevice()
        optimizer = make(model.parameters())
        hook = deltawire.torch.register(model, "direct(gcomp)", optimizer=optimizer)
        given = wrapped(Given())
        theirs = make(given.parameters())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DELTAWIRE_FORCE_STAGING", "off")
            twin = deltawire.torch.register(given, "direct(gcomp)", optimizer=theirs)
        pairs = list(zip(given.parameters(), model.parameters(), strict=True))
        for step in range(STEPS):
            take(theirs, optimizer, pairs)
            for ours, own in pairs:
                seen = significance_of(optimizer, own)
                assert seen.device == own.device
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv("DELTAWIRE_FORCE_STAGING", "off")
                    assert same_bits(seen, significance_of(theirs, ours)), f"{name}, step {step}"
            alone.load_state_dict(model.module.state_dict())
            backward(alone, rank, step)
            given.zero_grad()
            given([each.grad.cpu() for each in alone.parameters()]).backward()
            backward(model, rank, step)
            for ours, own in pairs:
                assert same_bits(ours.grad, own.grad), f"{name}, step {step}"
            optimizer.step()
        sent = [each.metrics()["total_bytes_sent"] for each in (hook, twin)]
        plain = wrapped(OnDevice())
        uncut = deltawire.torch.register(plain, "direct(gcomp)")
        backward(plain, rank, 0)
        found[name] = sent, uncut.metrics()["bytes_sent"], hook.metrics()["bytes_sent"]
        for each in (hook, twin, uncut):
            each.close()
    return found


@pytest.mark.timeout(180)
def test_what_is_cut_is_what_the_cpu_cuts():
    for found in results(against_the_cpu, 2):
        for name, (sent, uncut, cut) in found.items():
            print(f"{name}: {cut} bytes in the last step, {uncut} uncut")
            assert cut < uncut, f"{name}: nothing was cut"
            assert abs(sent[0] - sent[1]) < 0.05 * sent[1], "buckets differ by frames alone"


def recorded(rank, world_size, report, folder):
    """Whether what rank 0 has recorded are the third step's means and significance, bit for bit."""
    model = wrapped(OnDevice())
    hook = deltawire.torch.register(model, "3lc")
    optimizer = OPTIMIZERS["adam"](model.parameters())
    deltawire.torch.trace(model, folder, optimizer=optimizer, steps=[3], significance=True)
    for step in range(3):
        backward(model, rank, step)
        means = [each.grad.cpu().numpy() for each in model.parameters()]
        seen = [significance_of(optimizer, each).cpu().numpy() for each in model.parameters()]
        optimizer.step()
    hook.close()
    if rank > 0:
        return True
    (step,) = deltawire.read_trace(folder)
    found = [each.values for each in step.gradients], [each.significance for each in step.gradients]
    pairs = zip(itertools.chain(*found), [*means, *seen], strict=True)
    return all(one.tobytes() == other.tobytes() for one, other in pairs)


def test_a_trace_has_the_gradients_and_their_significance(tmp_path):
    assert results(recorded, 2, str(tmp_path / "trace")) == [True, True]
