"""New weights for rollouts over TCP, in the shape of verl's checkpoint engines.

    python verl_live.py

`LiveCheckpointEngine` has the methods of verl's `CheckpointEngine`, which trainer and rollouts
share. `transfer` makes the calls of its `CheckpointEngineManager`: prepare, build_topology,
init_process_group, send_weights and receive_weights, finalize. verl isn't needed here: `Rollout` is
a stand-in of a few lines. With verl, derive the engine from its base class and register it with
`CheckpointEngineRegistry.register("deltawire")`; this has not been tried with verl itself.

Patches keep flowing between transfers: connections stay, `finalize` ends nothing.
"""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Iterator

import torch
from deltawire.torch import Publisher, Subscriber


class LiveCheckpointEngine:
    """Both sides: `is_master` is the trainer's first rank, the others of its ranks send nothing.

    `address` and `token` come from verl's `engine_kwargs`.
    """

    def __init__(self, bucket_size: int, address: str, token: str, is_master: bool = False) -> None:
        self.is_master, self.address, self.token = is_master, address, token
        self.weights: dict[str, torch.Tensor] = {}  # the trainer's, whole, in host memory
        self.publisher: Publisher | None = None
        self.subscriber: Subscriber | None = None
        self.version = -1

    def prepare(self) -> dict:
        """What others need to know of this one, before each transfer."""
        return {"version": self.version + 1} if self.is_master else {}

    @classmethod
    def build_topology(
        cls, trainer_world_size: int, rollout_world_size: int, metadata: list[dict]
    ) -> tuple[dict[str, list], dict[str, list]]:
        """Tells all workers which version comes next."""
        version = metadata[0]["version"]
        return {"version": [version] * trainer_world_size}, {
            "version": [version] * rollout_world_size
        }

    def init_process_group(self, version: int) -> None:
        """There is no group: the version is noted."""
        self.version = version

    async def send_weights(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Publishes what the trainer yields, tensor by tensor."""
        for name, tensor in weights:
            if self.is_master:
                host = self.weights.setdefault(name, torch.empty_like(tensor, device="cpu"))
                host.copy_(tensor)
        if self.is_master:
            if self.publisher is None:
                self.publisher = Publisher(self.weights, self.address, token=self.token)
            self.publisher.publish(self.version)

    async def receive_weights(self) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yields the version's weights, when they are all there."""
        if self.subscriber is None:
            self.subscriber = Subscriber(None, self.address, token=self.token)
        await asyncio.to_thread(self.subscriber.wait, self.version)
        self.subscriber.update()
        for name, tensor in self.subscriber.model.items():
            yield name, tensor

    def finalize(self) -> None:
        """Connections stay for the next transfer."""


class Rollout:
    """What loads weights in the server."""

    def __init__(self, address: str, token: str) -> None:
        self.engine = LiveCheckpointEngine(0, address, token)
        self.loaded: dict[str, torch.Tensor] = {}

    async def update_weights(self) -> None:
        """As verl's worker does."""
        async for name, tensor in self.engine.receive_weights():
            self.loaded[name] = tensor.clone()


async def transfer(
    trainer: LiveCheckpointEngine, model: torch.nn.Module, rollouts: list[Rollout]
) -> None:
    """The manager's calls for one update of all rollouts."""
    engines = [trainer, *(rollout.engine for rollout in rollouts)]
    metadata = [engine.prepare() for engine in engines]
    first, others = LiveCheckpointEngine.build_topology(1, len(rollouts), metadata)
    for engine, version in zip(engines, first["version"] + others["version"], strict=True):
        engine.init_process_group(version=version)
    sent = trainer.send_weights(iter(model.state_dict().items()))
    await asyncio.gather(sent, *(rollout.update_weights() for rollout in rollouts))
    for engine in engines:
        engine.finalize()


async def train() -> None:
    """Three steps, two rollouts."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)).bfloat16()
    token = secrets.token_hex(32)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = "127.0.0.1:{1}".format(*free.getsockname())
    trainer = LiveCheckpointEngine(0, address, token, is_master=True)
    rollouts = [Rollout(address, token) for _ in range(2)]
    for step in range(3):
        with torch.no_grad():
            model[0].weight[step::50] *= 1.01
        await transfer(trainer, model, rollouts)
        for rollout in rollouts:
            for name, tensor in model.state_dict().items():
                assert torch.equal(rollout.loaded[name], tensor)
    for rollout in rollouts:
        subscriber = rollout.engine.subscriber
        print(
            f"a rollout at version {subscriber.version}, which read "
            f"{subscriber.bytes_received:,} bytes"
        )
        subscriber.close()
    trainer.publisher.close()


if __name__ == "__main__":
    asyncio.run(train())
