"""Metrics in TensorBoard. Start it with: torchrun --nproc-per-node=2 tensorboard_scalars.py; then
tensorboard --logdir runs. Weights & Biases takes the same dict: wandb.log(hook.scalars())."""

import deltawire.torch  # deltawire
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
writer = SummaryWriter(f"runs/rank-{rank}")
hook = deltawire.torch.register(model, "3lc")  # deltawire
for step in range(20):
    torch.manual_seed(1000 * rank + step)
    x = torch.randn(32, 64)
    loss = (model(x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    writer.add_scalar("loss", loss.item(), step)
    for name, value in hook.scalars(per_bucket=True).items():  # deltawire
        writer.add_scalar(name, value, step)  # deltawire
writer.close()
print(f"rank {rank}: loss {loss:.6f}")
torch.distributed.destroy_process_group()
