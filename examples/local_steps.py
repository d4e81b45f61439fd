"""Rounds of local steps. Run it: torchrun --nproc-per-node=2 local_steps.py"""

import os

import deltawire.torch
import torch

ROUNDS = int(os.environ.get("ROUNDS", "12"))
STEPS = 10  # local steps a round

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
truth = torch.randn(1000, 10)  # what is to be learned
network = torch.nn.Linear(1000, 10, bias=False)  # the bare module, no DistributedDataParallel
optimizer = torch.optim.AdamW(network.parameters(), lr=0.05)
trainer = deltawire.torch.LocalSteps(network, optimizer, "3lc", steps=STEPS)

own = torch.Generator().manual_seed(1 + rank)  # each rank draws data of its own
for step in range(ROUNDS * STEPS):
    inputs = torch.randn(64, 1000, generator=own)
    loss = torch.nn.functional.mse_loss(network(inputs), inputs @ truth)
    optimizer.zero_grad()
    loss.backward()
    trainer.step()  # instead of optimizer.step(); every STEPS calls it exchanges
    if rank == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss.item():.1f}")
trainer.exchange()  # what the last, shorter round has changed, if there was one

distance = ((network.weight.detach().T - truth).norm() / truth.norm()).item()
print(
    f"rank {rank}: {trainer.round} rounds, {distance:.2f} from the truth, "
    f"{trainer.metrics()['total_ratio']:.0f} times fewer bytes a round"
)
trainer.close()
torch.distributed.destroy_process_group()
