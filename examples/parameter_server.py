"""Two parameter servers, four workers. Run it: torchrun --nproc-per-node=6 parameter_server.py"""

import os

import deltawire.torch
import torch

STEPS = int(os.environ.get("STEPS", "200"))

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
truth = torch.randn(1000, 20)  # what is to be learned
network = torch.nn.Linear(1000, 20, bias=False)  # the bare module, no DistributedDataParallel
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=STEPS // 2, gamma=0.3)
server = deltawire.torch.ParameterServer(network, optimizer, "3lc", servers=2)

if server.serves:  # ranks 0 and 1
    steps = server.serve(after_step=scheduler.step)  # until the workers close
    each = server.metrics()["encodes_per_step"]
    print(f"rank {rank} served {steps} steps, {each:.0f} changes encoded in each")
else:
    own = torch.Generator().manual_seed(1 + rank)  # each worker draws data of its own
    for step in range(STEPS):
        inputs = torch.randn(64, 1000, generator=own)
        loss = torch.nn.functional.mse_loss(network(inputs), inputs @ truth)
        optimizer.zero_grad()
        loss.backward()  # gradients leave for the servers as soon as they are there
        server.step()  # instead of optimizer.step(): the servers' parameters
        if rank == 2 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.1f}")
    distance = ((network.weight.detach().T - truth).norm() / truth.norm()).item()
    saved = server.metrics()
    print(
        f"rank {rank}: {distance:.3f} from the truth, {saved['push_ratio']:.0f} times fewer bytes "
        f"up, {saved['pull_ratio']:.0f} times down"
    )
server.close()
torch.distributed.destroy_process_group()
