"""LeNet-5 under DDP, gradients by 3LC. Run it: torchrun --nproc-per-node=2 ddp_lenet5.py"""

import os

import deltawire.torch
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "60"))

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)  # the same model and the same patterns on every rank
network = nn.Sequential(  # LeNet-5
    *(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten()),
    *(nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)),
)
patterns = torch.randn(10, 1, 28, 28)  # stands in for your data: one noisy pattern for each class


def batch(size, draw):
    """Images and their labels."""
    labels = torch.randint(10, (size,), generator=draw)
    noise = torch.randn(size, 1, 28, 28, generator=draw)
    return patterns[labels] + 2 * noise, labels


model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
hook = deltawire.torch.register(model, "3lc")  # the one line that deltawire asks for

own = torch.Generator().manual_seed(1 + rank)  # each rank draws batches of its own
for step in range(STEPS):
    images, labels = batch(32, own)
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

images, labels = batch(500, torch.Generator().manual_seed(99))
with torch.no_grad():
    accuracy = (network(images).argmax(1) == labels).float().mean().item()
print(f"rank {rank}: {accuracy:.0%} right, {hook.metrics()['total_ratio']:.0f} times fewer bytes")
hook.close()
torch.distributed.destroy_process_group()
