"""Ray Train. Start it with: python with_ray.py; Ray starts the ranks, and their process group."""

import deltawire.torch  # deltawire
import ray
import torch
from ray.train import ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model


def train():
    """On each worker."""
    rank = get_context().get_world_rank()
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 1)
    model = prepare_model(torch.nn.Sequential(*layers))
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


if __name__ == "__main__":
    ray.init(num_cpus=3)
    TorchTrainer(
        train,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    ).fit()
