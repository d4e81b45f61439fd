"""The clients' side. One line differs from the plain app: the mod."""

import deltawire.flower
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from compressed_app import task

app = ClientApp(mods=[deltawire.flower.mod("sbc:p=1%")])


def weights_of(message: Message) -> dict:
    """What the server sent."""
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


@app.train()
def train(message: Message, context: Context) -> Message:
    """Local steps on this client's examples."""
    inputs, labels = task.examples(context.node_config["partition-id"])
    weights = weights_of(message)
    task.train(weights, inputs, labels)
    metrics = {"num-examples": len(labels), "loss": task.score(weights, inputs, labels)[0]}
    arrays = ArrayRecord({name: Array(array) for name, array in weights.items()})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Loss and accuracy on this client's examples."""
    inputs, labels = task.examples(context.node_config["partition-id"])
    loss, right = task.score(weights_of(message), inputs, labels)
    metrics = {"num-examples": len(labels), "loss": loss, "accuracy": right}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
