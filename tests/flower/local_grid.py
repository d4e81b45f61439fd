"""A Flower Grid without processes: it runs a ClientApp in this one, message by message."""

import copy
import itertools

import deltawire.flower
import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp import strategy as strategies
from flwr.supercore.task_identity import TaskIdentity

# Message() refuses to be made outside of a Flower task.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

SHAPES = {"w1": (30, 40), "b1": (40,), "w2": (40, 50)}
FIRST_NODE = 1000


def start_arrays():
    draw = np.random.default_rng(0)
    return ArrayRecord(
        {k: Array(draw.normal(0, 1, s).astype("float32")) for k, s in SHAPES.items()}
    )


def target(partition):
    draw = np.random.default_rng(100 + partition)
    return {k: draw.normal(0, 1, s).astype("float32") for k, s in SHAPES.items()}


class LocalGrid(Grid):
    """Nodes 1000, 1001, ...; `silent` ones never answer, `forgetful` ones lose their state."""

    run = None

    def __init__(self, app, nodes, silent=(), forgetful=()):
        self.app, self.ids = app, itertools.count(1)
        self.silent, self.forgetful = set(silent), set(forgetful)
        self.contexts = {
            FIRST_NODE + i: Context(1, FIRST_NODE + i, {"partition-id": i}, RecordDict(), {})
            for i in range(nodes)
        }
        self.sent = []

    def set_run(self, run): ...

    def create_message(self, *args, **settings):
        raise NotImplementedError

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            message.metadata._message_id = str(next(self.ids))
            self.sent.append(message)
            node = message.metadata.dst_node_id
            if node in self.silent:
                continue
            context = self.contexts[node]
            if node in self.forgetful:
                context.state = RecordDict()
            try:
                reply = self.app(copy.deepcopy(message), context)
            except Exception as error:
                reply = Message(Error(code=2, reason=repr(error)), reply_to=message)
            reply.metadata._message_id = str(next(self.ids))
            replies.append(reply)
        return replies


def plain(record):
    return {name: array.numpy() for name, array in record.items()}


def make_app(mods, spoil=None, counter=False):
    """Clients that go half of the way to a target of their own; `spoil(partition, weights)` may
    change what they return."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message, context):
        partition = context.node_config["partition-id"]
        weights = plain(message.content["arrays"])
        for name, goal in target(partition).items():
            weights[name] = (weights[name] + 0.5 * (goal - weights[name])).astype("float32")
        if counter:
            weights["steps"] = weights["steps"] + np.int64(1)
        count = 100
        loss = 1.0
        if spoil:
            weights, count, *loss_too = spoil(partition, weights)
            loss = loss_too[0] if loss_too else loss
        metrics = MetricRecord({"num-examples": count, "loss": loss})
        arrays = ArrayRecord({name: Array(np.asarray(value)) for name, value in weights.items()})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        weights = plain(message.content["arrays"])
        goal = target(context.node_config["partition-id"])
        loss = sum(float(np.square(weights[k] - goal[k]).sum()) for k in goal)
        metrics = MetricRecord({"num-examples": 100, "loss": loss})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


NODES = 7
ALL = {f"min_{what}_nodes": NODES for what in ("train", "evaluate", "available")}


def run(strategy, app, *, rounds=3, nodes=NODES, arrays=None, timeout=5.0, **grid):
    local = LocalGrid(app, nodes, **grid)
    result = strategy.start(
        grid=local, initial_arrays=arrays or start_arrays(), num_rounds=rounds, timeout=timeout
    )
    return plain(result.arrays), local


def compressed(make=strategies.FedAvg, nodes=NODES, **settings):
    every = {f"min_{what}_nodes": nodes for what in ("train", "evaluate", "available")}
    return deltawire.flower.Compressed(make(**every), **settings)


def is_train(reply):
    return bool(reply.content.array_records)
