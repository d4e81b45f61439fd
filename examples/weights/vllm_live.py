"""New weights for inference servers over TCP, in the shape of vLLM's weight transfer.

    python vllm_live.py

As `vllm_engine.py`, whose stand-in for a server this uses, but without a folder or object store
between trainer and servers. Servers fetch while they still generate, from the trainer or from each
other; they pause for what is left, the update in their own memory.
"""

import secrets

import torch
from deltawire.torch import Publisher, Subscriber
from vllm_engine import StandIn, send_weights


class LiveEngine:
    """The server's side: vLLM's `WeightTransferEngine`."""

    def __init__(self, config, vllm_config, device, model) -> None:
        self.model = model

    def init_transfer_engine(self, init_info: dict) -> None:
        """Loads the newest version."""
        self.subscriber = Subscriber(None, **init_info)
        self.receive_weights({"version": 0})

    def start_weight_update(self) -> None:
        """Nothing is to be prepared."""

    def receive_weights(self, update_info: dict) -> None:
        """Turns the weights into those of a version; after an error they are as they were."""
        self.subscriber.wait(update_info["version"])
        self.subscriber.update()
        self.model.load_weights(self.subscriber.model.items())

    def finish_weight_update(self) -> None:
        """Nothing is left to do."""

    def shutdown(self) -> None:
        """Ends the connections."""
        self.subscriber.close()


def main() -> None:
    """Three steps, four servers, of which one joins late; two read from the trainer."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)).bfloat16()
    token = secrets.token_hex(32)
    with Publisher(model, "127.0.0.1:0", token=token, fanout=2) as publisher:
        init_info = {"address": publisher.address, "token": token, "serve": "127.0.0.1:0"}
        publisher.publish()
        servers = [StandIn(LiveEngine, init_info) for _ in range(3)]
        for step in range(1, 4):
            with torch.no_grad():
                model[0].weight[step::50] *= 1.01
            publisher.publish(step)
            if step == 3:
                servers.append(StandIn(LiveEngine, init_info))
            send_weights(step, servers)
        for server in servers:
            for name, tensor in model.state_dict().items():
                assert torch.equal(server.loaded[name], tensor)
            subscriber = server.engine.subscriber
            source = "the trainer" if subscriber.parent == publisher.address else "a server"
            print(
                f"a server at version {subscriber.version}, which read "
                f"{subscriber.bytes_received:,} bytes from {source}"
            )
        for server in servers:
            server.engine.shutdown()


if __name__ == "__main__":
    main()
