"""Slurm, without torchrun: slurm.sh starts one process for each rank."""

import os

import deltawire.torch  # deltawire
import torch
from torch.nn.parallel import DistributedDataParallel

os.environ["RANK"] = os.environ["SLURM_PROCID"]
os.environ["WORLD_SIZE"] = os.environ["SLURM_NTASKS"]
os.environ["LOCAL_RANK"] = os.environ["SLURM_LOCALID"]
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
hook = deltawire.torch.register(model, "3lc")  # deltawire
for step in range(20):
    torch.manual_seed(1000 * rank + step)
    x = torch.randn(32, 64)
    loss = (model(x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank}: loss {loss:.6f}")
print(f"{hook.metrics()['total_ratio']:.1f} times fewer bytes than float32")  # deltawire
torch.distributed.destroy_process_group()
