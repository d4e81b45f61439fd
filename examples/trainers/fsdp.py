"""A plain loop over FSDP2, as torchtitan's: shards within a node, replicas between nodes. Start it
with: torchrun --nproc-per-node=4 fsdp.py (on one machine: two "nodes" of two ranks)"""

import deltawire.torch  # deltawire
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
for layer in (network[0], network[2]):
    fully_shard(layer, mesh=mesh)
model = fully_shard(network, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
hook = deltawire.torch.register(model, "3lc", optimizer=optimizer)  # deltawire
for step in range(20):
    torch.manual_seed(1000 * rank + step)
    x = torch.randn(32, 64)
    loss = (model(x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(f"rank {rank}: loss {loss:.6f}")
print(f"{hook.metrics()['total_ratio']:.1f} times fewer bytes than float32")  # deltawire
torch.distributed.destroy_process_group()
