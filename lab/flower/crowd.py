"""Many clients in Flower's simulation engine, some of them dead, slow or hostile.

    DELTAWIRE_DATA=... build/flower-venv/bin/python -m lab.flower.crowd [--clients 200]

The data are MNIST's, each client has its own examples, and the network is that of examples/flower.
A dead client raises at every message; a slow one takes ten times as long; --hostile makes one
client for each kind of bad reply (lab/flower/hostile.py). As usual in Flower, a round closes when
all have answered, with a reply or an error, or after --timeout seconds. A line for each exchange
shows the answers, the bytes, the server's memory (this process: Flower's server, SuperLink and
driver, without clients) and the accuracy on MNIST's test images. --plain: the same without
deltawire.
"""

import argparse
import logging
import os
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "flower"))
for variable in ("FLWR_DISABLE_UPDATE_CHECK", "RAY_DISABLE_IMPORT_WARNING"):
    os.environ.setdefault(variable, "1")
for variable in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
    os.environ.setdefault(variable, "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_worker_niceness", "0")  # its own 15 would starve clients

import deltawire.flower  # noqa: E402
from compressed_app import task  # noqa: E402
from deltawire import rounds  # noqa: E402
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from lab.command.program import make_parser  # noqa: E402
from lab.data.idx import load_image_set  # noqa: E402
from lab.data.images import data_folder  # noqa: E402
from lab.flower import hostile  # noqa: E402

SLOWER = 10
SHAPES = {name: array.shape for name, array in task.start().items()}
_sets: dict = {}


def images(given: argparse.Namespace):
    """(inputs, labels) of training and testing, read once per process."""
    if not _sets:
        found = load_image_set(given.data)
        _sets["train"] = (found.train_images, found.train_labels)
        _sets["test"] = (found.test_images, found.test_labels)
    return _sets


def part(pair, chosen):
    """Inputs, (count, 784), about 0, and labels."""
    inputs = pair[0][chosen].reshape(-1, 784).astype("float32") / 255 - 0.13
    return inputs, pair[1][chosen].astype("int64")


def weights_of(record) -> dict:
    """Copies as arrays that may be changed."""
    return {name: array.numpy().copy() for name, array in record.items()}


def is_dead(partition: int, given) -> bool:
    """Whether the client is dead; at 10 % the first of every ten is."""
    return given.dead > 0 and partition % round(100 / given.dead) == 0


def is_slow(partition: int, given) -> bool:
    """Whether the client is slow; at 10 % the second of every ten is."""
    return given.slow > 0 and partition % round(100 / given.slow) == 1


def client_app(given: argparse.Namespace) -> ClientApp:
    """Clients with deltawire's mod, or plain."""
    mods = []
    if not given.plain:
        mods = [deltawire.flower.mod(given.up)]
        kinds = {given.clients - 1 - at: kind for at, kind in enumerate(hostile.KINDS)}
        if given.hostile:
            mods.insert(0, hostile.mod_of(kinds, SHAPES))
    app = ClientApp(mods=mods)

    @app.train()
    def train(message, context):
        partition = context.node_config["partition-id"]
        if is_dead(partition, given):
            raise RuntimeError(f"client {partition} is dead")
        began = time.monotonic()
        inputs, labels = part(images(given)["train"], slice(partition, None, given.clients))
        weights = weights_of(message.content["arrays"])
        task.train(weights, inputs, labels, steps=given.steps)
        metrics = {"num-examples": len(labels), "loss": task.score(weights, inputs, labels)[0]}
        if is_slow(partition, given):
            time.sleep((SLOWER - 1) * max(given.pace, time.monotonic() - began))
        time.sleep(max(0.0, given.pace - (time.monotonic() - began)))
        arrays = ArrayRecord({name: Array(array) for name, array in weights.items()})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    return app


class Watch:
    """Prints each exchange, its time and the server's memory."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, seen: rounds.Seen) -> None:
        """A `watch` of `Compressed`."""
        now = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{seen.line()}; {now - self._last:.0f} s; server {resident():.0f} MiB, at most "
            f"{peak:.0f}",
            flush=True,
        )
        self._last = now


def resident() -> float:
    """MiB of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def server_app(given: argparse.Namespace, watch: Watch) -> ServerApp:
    """FedAvg of all clients; tests only on the server."""
    app = ServerApp()

    @app.main()
    def main(grid, context):
        every = given.clients
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=every, min_available_nodes=every)
        settings = {"evaluate_fn": test_on(given, watch if given.plain else None)}
        limits = {} if given.max_norm is None else {"max_norm": given.max_norm}
        if not given.plain:
            strategy = deltawire.flower.Compressed(
                strategy, down=given.down, watch=[watch], **limits
            )
        arrays = ArrayRecord({name: Array(array) for name, array in task.start().items()})
        strategy.start(
            grid=grid,
            initial_arrays=arrays,
            num_rounds=given.rounds,
            timeout=given.timeout,
            **settings,
        )
        if not given.plain:
            print(f"counts: {dict(strategy.grid.counts)}", flush=True)

    return app


def test_on(given: argparse.Namespace, watch: Watch | None):
    """The server's test; `watch` is called with it in a plain run."""

    def test(number, arrays):
        inputs, labels = part(images(given)["test"], slice(None))
        loss, right = task.score(weights_of(arrays), inputs, labels)
        if watch is not None:
            watch(rounds.Seen("server", number - 1, metrics={"accuracy": right}))
        return MetricRecord({"accuracy": right, "loss": loss})

    return test


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.flower.crowd", __doc__)
    parser.add_argument("--clients", type=int, default=200, help="default 200")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--dead", type=float, default=10, help="per cent of the clients")
    parser.add_argument("--slow", type=float, default=10, help="per cent, ten times slower")
    parser.add_argument("--hostile", action="store_true", help="a client for each kind of reply")
    parser.add_argument("--pace", type=float, default=0.05, help="seconds that a client trains")
    parser.add_argument("--steps", type=int, default=10, help="local steps a round")
    parser.add_argument("--timeout", type=float, default=600, help="seconds, of a round")
    parser.add_argument("--up", default="sbc:p=1%", help="codec of the clients")
    parser.add_argument("--down", default="3lc", help="codec of the way down")
    parser.add_argument("--max-norm", type=float, help="default: 10 times the round's median")
    parser.add_argument("--processes", type=int, default=2, help="that run clients")
    parser.add_argument("--plain", action="store_true", help="without deltawire")
    parser.add_argument("--data", type=Path, default=None, help="folder of MNIST's idx files")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Runs the simulation."""
    given = parse(argv)
    given.data = given.data or data_folder() / "mnist"
    logging.getLogger("flwr").setLevel(logging.WARNING)
    run_simulation(
        server_app=server_app(given, Watch()),
        client_app=client_app(given),
        num_supernodes=given.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": given.processes, "include_dashboard": False},
        },
    )
    return 0


if __name__ == "__main__":
    from lab.flower.crowd import main as run_main  # clients import the module, not __main__

    sys.exit(run_main(sys.argv[1:]))
