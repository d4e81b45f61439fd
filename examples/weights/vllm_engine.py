"""New weights for an inference server through a store, in the shape of vLLM's weight transfer.

    python vllm_engine.py

`StoreEngine` has the methods of vLLM's `WeightTransferEngine` (0.25). `send_weights` makes the
calls of its clients, which TRL's trainers make too: pause, start, update, finish, resume. vLLM
isn't needed here: `StandIn` is a server of a few lines with the same methods. With vLLM, derive
the engine from `vllm.distributed.weight_transfer.base.WeightTransferEngine`, and register it with
`WeightTransferEngineFactory.register_engine`; this has not been tried with vLLM itself.

What travels over HTTP is the number of a version. Each server reads the patches that it needs from
the store, so the trainer's work doesn't depend on how many servers there are, and one that was away
catches up by itself.
"""

import tempfile

import torch
from deltawire.weight_store import Store


class StoreEngine:
    """The server's side.

    The weights stay here in the trainer's format, in host memory. `load_weights` fuses them and
    cuts them for the server's devices.
    """

    def __init__(self, config, vllm_config, device, model) -> None:
        self.model = model
        self.store: Store | None = None

    def init_transfer_engine(self, init_info: dict) -> None:
        """Loads the newest version."""
        self.store = Store(init_info["url"], cache=init_info.get("cache"))
        self.at = self.store.latest()
        self.weights = self.store.load(self.at)
        self.model.load_weights(self.weights.items())

    def start_weight_update(self) -> None:
        """Nothing is to be prepared."""

    def receive_weights(self, update_info: dict) -> None:
        """Turns the weights into those of a version; after an error they are as they were."""
        self.at = self.store.update(self.weights, self.at, update_info["version"])
        self.model.load_weights(self.weights.items())

    def finish_weight_update(self) -> None:
        """Nothing is left to do."""

    def shutdown(self) -> None:
        """Readers have nothing to close."""


def send_weights(step: int, clients: list) -> None:
    """The trainer's side, when a version is published. Servers pause only while they read it."""
    for client in clients:
        client.pause(mode="keep")
        client.start_weight_update()
        client.update_weights({"version": step})
        client.finish_weight_update()
        client.resume()


class StandIn:
    """A server with the methods that are called, and its client at once."""

    def __init__(self, engine: type, init_info: dict) -> None:
        self.paused = False
        self.loaded: dict[str, torch.Tensor] = {}
        self.engine = engine(None, None, "cpu", self)
        self.engine.init_transfer_engine(init_info)

    def load_weights(self, weights) -> None:
        """What a model of vLLM does with a checkpoint's tensors."""
        self.loaded = {name: tensor.clone() for name, tensor in weights}

    def pause(self, mode: str) -> None:
        """No batch runs from here on."""
        self.paused = True

    def start_weight_update(self) -> None:
        """Of the four phases, the second; the first is the constructor."""
        assert self.paused
        self.engine.start_weight_update()

    def update_weights(self, update_info: dict) -> None:
        """The third."""
        self.engine.receive_weights(update_info)

    def finish_weight_update(self) -> None:
        """The fourth."""
        self.engine.finish_weight_update()

    def resume(self) -> None:
        """Batches run again."""
        self.paused = False


def main() -> None:
    """Three steps, two servers, of which one joins late."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)).bfloat16()
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        store.publish(model, version=0)
        servers = [StandIn(StoreEngine, {"url": folder})]
        for step in range(1, 4):
            with torch.no_grad():
                model[0].weight[step::50] *= 1.01
            if step == 3:
                servers.append(StandIn(StoreEngine, {"url": folder}))
            store.publish(model, version=step)
            send_weights(step, servers)
        for server in servers:
            for name, tensor in model.state_dict().items():
                assert torch.equal(server.loaded[name], tensor)
            read = server.engine.store.bytes_read
            print(f"a server at version {server.engine.at}, which read {read:,} bytes")


if __name__ == "__main__":
    main()
