"""`"auto"` of `register` on a GPU: the native all-reduce is exact and timed by the device, and what
is chosen gives the means of the CPU."""

import deltawire
import deltawire.torch
import gpu
import torch
from gpu import DEVICE, OnDevice, Twin, backward, results, same_bits
from models import descend, fingerprint, wrapped
from test_auto import TRIED, measured, slow_link

pytestmark = gpu.needs_gpu


def on_a_slow_link(rank, world_size, report):
    """Whether each step's means are those of plain DDP, and then of the chosen codec on the CPU."""
    model, plain = wrapped(OnDevice()), wrapped(OnDevice())
    hook = slow_link(model, "near-lossless")
    twin, exact, same = None, True, True
    for step in range(measured() + TRIED + 4):
        plain.load_state_dict(model.state_dict())
        backward(plain, rank, step)
        means = [each.grad for each in plain.parameters()]
        if hook.spec != "native" and hook.metrics()["phase"] == "compressing":
            if twin is None:
                register = lambda given: deltawire.torch.register(given, hook.spec)  # noqa: E731
                twin = Twin(model, register)
            means = twin.compute(rank, step)
        backward(model, rank, step)
        found = all(map(same_bits, [p.grad for p in model.parameters()], means))
        if twin is not None:
            same = same and found
        elif hook.spec == "native":
            exact = exact and found
        descend(model)
    metrics, copies = hook.metrics(), hook._measuring._copies
    twin.hook.close()
    hook.close()
    return exact, same, metrics["phase"], hook.spec, copies, fingerprint(model)


def test_means_are_those_of_ddp_and_then_of_the_chosen_codec():
    ranks = results(on_a_slow_link, 2)
    assert ranks[0][-1] == ranks[1][-1], "the replicas differ"
    for exact, same, phase, _, copies, _ in ranks:
        assert exact and same and phase == "compressing"
        assert all(0 < each < 1e-6 for each in copies), "slower than 1 MB/s"


def timed(rank, world_size, report):
    """Native steps whose forward pass keeps the device busy, and the CPU hardly."""
    busy = torch.ones(4096, 4096, device=DEVICE)

    def work(*_):
        for _ in range(10):
            busy @ busy.T

    model = wrapped(OnDevice())
    hook = deltawire.torch.register(model, "auto", tier="lossless")
    model.module.register_forward_pre_hook(work)
    for step in range(measured("lossless", is_slow=False) + 1):
        backward(model, rank, step)
    metrics = hook.metrics()
    hook.close()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    work()
    ended.record()
    torch.cuda.synchronize()
    return metrics["native_ms"], began.elapsed_time(ended), metrics["plans"]


@gpu.needs_cuda
def test_a_step_takes_as_long_as_the_device():
    for native_ms, work_ms, plans in results(timed, 2):
        assert plans == 1 and native_ms > 0.5 * work_ms
