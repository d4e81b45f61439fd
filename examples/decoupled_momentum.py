"""Two ranks train with DeMo, which exchanges the fast part of their momenta.

    export DELTAWIRE_TOKEN=$(openssl rand -hex 32)
    python decoupled_momentum.py 0 127.0.0.1:29600 &
    python decoupled_momentum.py 1 127.0.0.1:29600

DeMo (Peng, Quesnelle, Kingma, "DeMo: Decoupled Momentum Optimization", arXiv 2411.19870): of each
block of 64 x 64 momenta a rank sends the 32 largest coefficients of a cosine transform, and keeps
the rest; all ranks step by the signs of the mean. The transform preserves lengths, so that the
momentum is topk's residual, in coefficients, with a decay of 0.999.
"""

import math
import sys
from collections.abc import Iterable

import deltawire
import torch

WORLD_SIZE = 2
SIDE = 64  # of a block of a matrix, and the length of a vector's
SPEC = (
    "gather(dims>=2: topk:k=0.78125%,positions=auto,chunk=4096 with decay=0.999, "
    "rest topk:k=50%,positions=auto,chunk=64 with decay=0.999)"
)
STEPS = 300
RATE = 0.1


class DeMo(torch.optim.Optimizer):
    """Steps float32 matrices and vectors, whose sides must be multiples of 64.

    Args:
        parameters: the model's; they must begin equal on all ranks.
        session: of all ranks, with SPEC and min_elements=64. It holds the momenta: save it with
            the model.
        lr: the length of each element's step.
        weight_decay: of each step, times `lr`.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        session: deltawire.Session,
        lr: float,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self._session = session
        places = torch.arange(SIDE, dtype=torch.float64)
        waves = torch.cos(math.pi / SIDE * (places[:, None] + 0.5) * places)
        waves[:, 0] /= math.sqrt(2)
        self._waves = (waves * math.sqrt(2 / SIDE)).float()  # the orthonormal DCT-II

    @torch.no_grad()
    def step(self) -> None:
        """A collective: every rank steps at the same time."""
        every = [(p, group) for group in self.param_groups for p in group["params"]]
        changes = [group["lr"] * p.grad for p, group in every]
        for (p, group), mean in zip(every, self.exchange(changes), strict=True):
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.sub_(group["lr"] * mean.sign())

    def exchange(self, changes: list[torch.Tensor]) -> list[torch.Tensor]:
        """Adds gradients times the rate to the momenta; the mean of what the ranks send of them."""
        sent = {str(i): self._coefficients(change) for i, change in enumerate(changes)}
        self._session.all_reduce(sent)
        means = zip(sent.values(), changes, strict=True)
        return [self._from_coefficients(each, like) for each, like in means]

    def _coefficients(self, x: torch.Tensor) -> torch.Tensor:
        if x.dim() == 1:
            return (x.view(-1, SIDE) @ self._waves).view(-1)
        blocks = x.view(x.shape[0] // SIDE, SIDE, x.shape[1] // SIDE, SIDE)
        found = torch.einsum("ahbw,hk,wl->abkl", blocks, self._waves, self._waves)
        return found.reshape(-1, SIDE * SIDE)

    def _from_coefficients(self, sent: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        if like.dim() == 1:
            return (sent.view(-1, SIDE) @ self._waves.T).view(-1)
        blocks = sent.view(like.shape[0] // SIDE, like.shape[1] // SIDE, SIDE, SIDE)
        found = torch.einsum("abkl,hk,wl->ahbw", blocks, self._waves, self._waves)
        return found.reshape(like.shape)


def main(rank: int, address: str) -> None:
    """Trains, and says how far the model is from the truth and what was sent for it."""
    torch.manual_seed(0)
    truth = torch.randn(128, 64) @ torch.randn(64, 64) / 8
    network = torch.nn.Linear(128, 64)
    own = torch.Generator().manual_seed(1 + rank)  # each rank draws data of its own
    place = {"rank": rank, "world_size": WORLD_SIZE, "address": address}
    with deltawire.Session(SPEC, **place, min_elements=SIDE) as session:
        optimizer = DeMo(network.parameters(), session, lr=RATE)
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
            inputs = torch.randn(64, 128, generator=own)
            optimizer.zero_grad()
            (network(inputs) - inputs @ truth).square().mean().backward()
            optimizer.step()
        totals = session.metrics()
    distance = (network.weight.detach().T - truth).norm() / truth.norm()
    checked = sum(p.detach().double().sum().item() for p in network.parameters())
    print(
        f"rank {rank}: {distance:.2f} from the truth, {totals['total_ratio']:.0f} times less sent, "
        f"sum of weights {checked:.12f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
