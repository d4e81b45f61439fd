"""Federated rounds: SBC's algorithm 1 (Sattler, Wiedemann, Müller, Samek, IJCNN 2019) for one
client and for the server, on NumPy arrays. It has no network: the program carries the messages::

    server = rounds.Server(model, down="3lc")          # a dict of NumPy arrays
    client = rounds.Client("sbc:p=1%")

    server.begin()
    weights = client.receive(server.download("ann"))   # same, delta, patch, full
    reply = client.reply(train(weights), samples=600)  # n local steps, then one frame
    server.take("ann", reply)                          # checked; raises for a bad one
    model = server.finish()                            # the mean, weighted by samples

Federated averaging is `Client("fp32")`, gradient dropping `Client("dropping:k=0.1%")` after every
step, Deep Gradient Compression `Client("dgc:p=0.1%")`: only the codec decides what is sent.
`deltawire.flower` transports these messages with Flower; `deltawire.torch.LocalSteps` runs the same
algorithm among ranks without a server.
"""

from deltawire.rounds.broadcast import Broadcast
from deltawire.rounds.client import Client
from deltawire.rounds.intake import Intake, Update
from deltawire.rounds.limits import Medians
from deltawire.rounds.messages import Download, ModelLayout, Reply, TensorLayout, layout_of
from deltawire.rounds.observability import Seen, TensorBoard, live_line
from deltawire.rounds.server import Server

__all__ = [
    "Broadcast",
    "Client",
    "Download",
    "Intake",
    "Medians",
    "ModelLayout",
    "Reply",
    "Seen",
    "Server",
    "TensorBoard",
    "TensorLayout",
    "Update",
    "layout_of",
    "live_line",
]
