"""Parameter servers whose workers have their model on a GPU."""

import deltawire.torch
import gpu
import torch
from gpu import OnDevice, results
from models import fingerprint
from served import SOON, sgd

pytestmark = gpu.needs_gpu
STEPS = 6


class GivenOnDevice(OnDevice):
    """Whose gradients are what it is called with, bit for bit."""

    def forward(self, gradients):
        pairs = zip(self.parameters(), gradients, strict=True)
        return sum((p * gradient.to(p.device)).sum() for p, gradient in pairs)


def given(model, rank, step):
    generator = torch.Generator().manual_seed(100 * rank + step)
    gradients = [torch.randn(each.shape, generator=generator) for each in model.parameters()]
    model.zero_grad()
    model(gradients).backward()


def trained(rank, model, backward, **options):
    """The parameters' fingerprint."""
    optimizer = sgd(model, momentum=0.9)
    options |= {"spec": "3lc:s=1.75", "timeout": SOON}
    server = deltawire.torch.ParameterServer(model, optimizer, **options)
    if server.serves:
        server.serve()
    else:
        server.start()
    for step in range(0 if server.serves else STEPS):
        backward(model, rank, step)
        server.step()
    server.close()
    return fingerprint(model)


def on_and_off(rank, world_size, report):
    """All on the CPU, and then rank 2 on the device."""
    on_cpu = trained(rank, gpu.Given(), given)
    return on_cpu, trained(rank, gpu.Given() if rank < 2 else GivenOnDevice(), given)


def test_parameters_on_a_gpu_are_those_of_the_cpu():
    workers = results(on_and_off, 3)[1:]
    assert len({each for both in workers for each in both}) == 1


def by_layers(rank, world_size, report, folder):
    """With snapshots, which are due during a backward pass."""
    options = {"overlap": "both", "snapshot": folder, "every": 2}
    return trained(rank, OnDevice(), gpu.backward, **options)


def test_layers_wait_for_their_parameters(tmp_path):
    _, first, second = results(by_layers, 3, str(tmp_path))
    assert first == second


def ahead(rank, world_size, report, folder):
    options = {"staleness": 1, "snapshot": folder, "every": 2}
    return trained(rank, OnDevice(), gpu.backward, **options)


def test_workers_that_may_be_ahead_end_equal_on_a_gpu(tmp_path):
    _, first, second = results(ahead, 3, str(tmp_path))
    assert first == second
