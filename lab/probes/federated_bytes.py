"""What federated rounds send down, by kind, with and without patches.

    DELTAWIRE_DATA=... python -m lab.probes.federated_bytes [--clients 50] [--sampled 25]

LeNet5 (Caffe's) trains on MNIST. In each round the server draws the clients that take part; each
trains from the model that it gets, by SGD on its own examples. For every codec of the way up
(--up), every way down (--down: a codec, or "none") and every --weights there is a row: the bytes of
all frames in both directions; what the same codec would send down as float32 and without patches;
bytes and messages by kind ("same" takes no bytes); and the accuracy on the test images. Finished
rows are kept in the --out folder's rows.json, and not trained again; accuracy-bytes.svg shows
accuracy against all bytes sent.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import deltawire
import numpy as np
import torch
from deltawire import rounds
from torch.nn.functional import cross_entropy

from lab.command.program import main_of, make_parser
from lab.data.batches import scale
from lab.data.idx import load_image_set
from lab.data.images import DataError, ImageSet, data_folder
from lab.models.evaluate import Evaluator
from lab.models.lenet import make_lenet

UP = ["sbc:p=1%", "topk:k=1%", "sparseloco", "3lc", "fp32"]
KINDS = ("delta", "patch", "full")


class Trainer:
    """Trains one network, which all clients use in turn."""

    def __init__(self, images: ImageSet, given: argparse.Namespace) -> None:
        self.network = make_lenet(given.seed)
        self._images = torch.from_numpy(images.train_images.copy())
        self._labels = torch.from_numpy(images.train_labels.astype(np.int64))
        order = np.random.default_rng(given.seed).permutation(len(self._labels))
        self._shares = np.array_split(order, given.clients)
        self._draws = [np.random.default_rng([given.seed, i]) for i in range(given.clients)]
        self._given = given

    def load(self, model: dict[str, np.ndarray]) -> None:
        """Sets the network's weights."""
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                parameter.copy_(torch.from_numpy(model[name]))

    def weights(self) -> dict[str, np.ndarray]:
        """The network's weights, as views."""
        return {name: p.detach().numpy() for name, p in self.network.named_parameters()}

    def train(self, client: int, model: dict[str, np.ndarray]) -> tuple[dict, int]:
        """A client's local steps: the weights after them, and its number of examples."""
        self.load(model)
        share, draw = self._shares[client], self._draws[client]
        optimizer = torch.optim.SGD(self.network.parameters(), lr=self._given.lr)
        for _ in range(self._given.steps):
            chosen = torch.from_numpy(draw.choice(share, self._given.batch))
            optimizer.zero_grad()
            logits = self.network(scale(self._images[chosen]))
            cross_entropy(logits, self._labels[chosen]).backward()
            optimizer.step()
        return self.weights(), len(share)


class Before:
    """The bytes that the same rounds would send down as float32 and without patches."""

    def __init__(self, down: str | None) -> None:
        self._broadcast = rounds.Broadcast(down, bases=0)
        self.bytes: Counter = Counter()

    def advance(self, model: dict[str, np.ndarray]) -> None:
        """The server's model of a new round."""
        self._broadcast.advance(model)

    def send(self, client: int) -> None:
        """Counts what a client would get, which replies."""
        download = self._broadcast.download(client)
        self.bytes[download.kind] += download.byte_count
        self._broadcast.confirm(client, download.version)


def measure(up: str, down: str, weights: str, images: ImageSet, given) -> dict:
    """A finished row."""
    trainer, codec = Trainer(images, given), None if down == "none" else down
    # All clients are honest, and have equal numbers of samples.
    server = rounds.Server(
        trainer.weights(), up=up, down=codec, weights=weights, bases=given.bases, max_norm=None
    )
    clients = [rounds.Client(up, rank=rank) for rank in range(given.clients)]
    before, draw = Before(codec), np.random.default_rng(given.seed)
    evaluator, sent, counts, curve, up_bytes = Evaluator(images), Counter(), Counter(), [], 0
    for number in range(given.rounds):
        server.begin()
        before.advance(server.model)
        for rank in sorted(draw.choice(given.clients, given.sampled, replace=False).tolist()):
            download = server.download(rank)
            before.send(rank)
            counts[download.kind] += 1
            sent[download.kind] += download.byte_count
            reply = clients[rank].reply(*trainer.train(rank, clients[rank].receive(download)))
            server.take(rank, reply)
            up_bytes += len(reply.frame)
        model = server.finish()
        if (number + 1) % given.every == 0 or number + 1 == given.rounds:
            trainer.load(model)
            accuracy = 100 * evaluator.accuracy(trainer.network)
            curve.append([up_bytes + sent.total(), accuracy])
            print(f"  {up}, {down}, {weights}: {number + 1} rounds, {accuracy:.1f} %", flush=True)
    return {
        "up": up,
        "down": down,
        "weights": weights,
        "up_bytes": up_bytes,
        "counts": counts,
        "sent": sent,
        "before": before.bytes,
        "curve": curve,
    }


def table_text(rows: list[dict]) -> str:
    """The rows in Markdown; MB of 10^6 bytes."""
    lines = [
        "| up | down | weights | MB up | MB down before | MB down | smaller "
        "| delta, patch, full: MB | messages | accuracy |",
        "|" + " --- |" * 10,
    ]
    for row in rows:
        before, sent = sum(row["before"].values()), sum(row["sent"].values())
        by_kind = ", ".join(f"{row['sent'].get(kind, 0) / 1e6:.1f}" for kind in KINDS)
        counts = ", ".join(f"{row['counts'].get(kind, 0)}" for kind in KINDS)
        lines.append(
            f"| `{row['up']}` | {row['down']} | {row['weights']} | {row['up_bytes'] / 1e6:.1f} "
            f"| {before / 1e6:.1f} "
            f"| {sent / 1e6:.1f} | {before / sent:.2f} | {by_kind} | {counts} "
            f"| {row['curve'][-1][1]:.1f} % |"
        )
    return "\n".join(lines)


def plot(rows: list[dict], path: Path) -> None:
    """Plots accuracy against the bytes of both directions."""
    from matplotlib import pyplot

    from lab.figures.style import STYLE, look_of, to_svg

    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(8, 5))
        for index, row in enumerate(rows):
            colour, marker = look_of(index)
            sent, accuracy = zip(*row["curve"], strict=True)
            name = f"{row['up']}, {row['down']}, {row['weights']}"
            axes.plot(sent, accuracy, color=colour, marker=marker, markersize=4, label=name)
        axes.set(xscale="log", xlabel="bytes up and down", ylabel="test accuracy, %")
        axes.legend(fontsize=8)
        path.write_text(to_svg(figure))


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.probes.federated_bytes", __doc__)
    parser.add_argument("--clients", type=int, default=50, help="default 50")
    parser.add_argument("--sampled", type=int, default=25, help="in each round; default 25")
    parser.add_argument("--rounds", type=int, default=20, help="default 20")
    parser.add_argument("--steps", type=int, default=8, help="local steps a round; default 8")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=5, help="rounds from test to test")
    parser.add_argument(
        "--bases", type=int, default=None, help="versions that the server keeps; default: its own"
    )
    parser.add_argument("--up", nargs="+", default=UP, help="codecs")
    parser.add_argument("--down", nargs="+", default=["none", "3lc"], help="codecs, or none")
    parser.add_argument("--weights", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--data", type=Path, default=None, help="folder of MNIST's idx files")
    parser.add_argument("--out", type=Path, default=Path("out/federated-bytes"))
    return parser.parse_args(argv)


def run(given: argparse.Namespace) -> None:
    """Measures every missing row, then writes the table and the plot."""
    torch.set_num_threads(1)  # such small batches gain nothing from more
    images = load_image_set(given.data or data_folder() / "mnist")
    given.out.mkdir(parents=True, exist_ok=True)
    kept_at = given.out / "rows.json"
    names = ("clients", "sampled", "rounds", "steps", "batch", "lr", "seed", "every", "bases")
    setting = " ".join(f"{name}={getattr(given, name)}" for name in names)
    kept = json.loads(kept_at.read_text()) if kept_at.exists() else {}
    finished = kept.setdefault(setting, {})
    wanted = [(up, down, kind) for up in given.up for down in given.down for kind in given.weights]
    for row in wanted:
        name = ", ".join(row)
        if name not in finished:
            finished[name] = measure(*row, images, given)
            part = kept_at.with_suffix(".part")
            part.write_text(json.dumps(kept))
            part.replace(kept_at)
    found = [finished[", ".join(row)] for row in wanted]
    print(table_text(found))
    plot(found, given.out / "accuracy-bytes.svg")


main = main_of("lab.probes.federated_bytes", parse, run, DataError, deltawire.DeltawireError)


if __name__ == "__main__":
    sys.exit(main())
