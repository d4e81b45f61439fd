"""LeNet-5 on MNIST under DDP, gradients by 3LC. FOLDER has MNIST's four files, plain or gzipped, or
those of a set like it. Run it: torchrun --nproc-per-node=2 ddp_mnist.py FOLDER"""

import gzip
import os
import sys
from pathlib import Path

import deltawire.torch
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "300"))


def load(name, header):
    """The bytes of FOLDER/name[.gz] behind the header, as a tensor."""
    path = Path(sys.argv[1]) / name
    packed = path.with_name(f"{name}.gz")
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    return torch.frombuffer(bytearray(content[header:]), dtype=torch.uint8)


def load_set(prefix):
    """This rank's share of "train" or "t10k": images, from 0 to 255, and their labels."""
    images = load(f"{prefix}-images-idx3-ubyte", 16).view(-1, 1, 28, 28)
    labels = load(f"{prefix}-labels-idx1-ubyte", 8).long()
    return images[rank::world], labels[rank::world]


torch.distributed.init_process_group("gloo")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(0)  # the same model on every rank
network = nn.Sequential(  # LeNet-5
    *(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten()),
    *(nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)),
)
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
hook = deltawire.torch.register(model, "3lc")  # the one line that deltawire asks for

images, labels = load_set("train")
order = torch.Generator().manual_seed(1 + rank)
for step in range(STEPS):
    chosen = torch.randint(len(labels), (32,), generator=order)
    loss = nn.functional.cross_entropy(model(images[chosen] / 255), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 100 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

images, labels = load_set("t10k")
with torch.no_grad():
    right = (network(images / 255).argmax(1) == labels).sum()
torch.distributed.all_reduce(right)
fewer = hook.metrics()["total_ratio"]
if rank == 0:
    print(f"{right.item()} of the 10,000 test images right, {fewer:.0f} times fewer bytes")
hook.close()
torch.distributed.destroy_process_group()
