"""Accelerate, with gradient accumulation. Start it with: torchrun --nproc-per-node=2
with_accelerate.py (or accelerate launch)"""

import deltawire.torch  # deltawire
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
x = torch.randn(40 * 2 * 32, 64, generator=torch.Generator().manual_seed(1))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=32)
model, optimizer, loader = accelerator.prepare(network, optimizer, loader)
hook = deltawire.torch.register(model, "3lc")  # deltawire
accelerator.register_for_checkpointing(deltawire.torch.AllRanks(hook))  # deltawire
for (x,) in loader:
    with accelerator.accumulate(model):
        loss = (model(x) - x[:, :1]).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
accelerator.save_state("accelerate-checkpoint")
print(f"rank {accelerator.process_index}: loss {loss:.6f}")
print(f"{hook.metrics()['total_ratio']:.1f} times fewer bytes than float32")  # deltawire
accelerator.end_training()
