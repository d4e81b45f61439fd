"""Ranks that meet every tenth step. Start it with: torchrun --nproc-per-node=2 local_steps.py"""

import deltawire.torch  # deltawire
import torch

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
trainer = deltawire.torch.LocalSteps(network, optimizer, steps=10, reducer="3lc")  # deltawire
for step in range(40):
    torch.manual_seed(1000 * rank + step)
    x = torch.randn(32, 64)
    loss = (network(x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    trainer.step()  # deltawire: optimizer.step()
print(f"rank {rank}: loss {loss:.6f}")
print(f"{trainer.metrics()['total_ratio']:.1f} times fewer bytes than float32")  # deltawire
torch.distributed.destroy_process_group()
