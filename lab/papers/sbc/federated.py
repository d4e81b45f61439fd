"""SBC's federated rounds: table 3 and figure 3's question, with real bytes.

    DELTAWIRE_DATA=... python -m lab.papers.sbc.federated [--clients 100] [--iterations 100]

LeNet5 (Caffe's) trains on MNIST, with all clients in one process, each with Adam and the same
number of its own examples; with --split two, of only two classes. Every row of table 3 (Sattler,
Wiedemann, Müller, Samek, "Sparse Binary Compression", IJCNN 2019) trains from the same weights for
the same number of iterations per client, through `deltawire.rounds`; the bytes are those of the
encoded frames. Finished rows are kept in the --out folder's rows.json, and not trained again;
--grid adds the paper's figure 3: temporal against gradient sparsity with equal product.
"""

import argparse
import dataclasses
import json
import sys
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


@dataclasses.dataclass(frozen=True)
class Row:
    """One way to train: a codec, local steps per round, and the paper's results for (100 iid, 400
    iid, 100 of two classes): accuracies in %, and times smaller."""

    name: str
    spec: str
    steps: int
    paper: tuple[float, float, float] | None = None
    smaller: int | None = None


TABLE = (
    Row("baseline", "fp32", 1, (97.9, 97.58, 95.06), 1),
    Row("gradient dropping", "topk:k=0.1%", 1, (98.11, 97.44, 94.98), 714),
    Row("federated averaging", "fp32", 100, (96.7, 89.9, 85.92), 100),
    Row("SBC (1)", "sbc:p=0.1%", 1, (97.9, 97.31, 95.22), 2363),
    Row("SBC (2)", "sbc:p=1%", 10, (98.18, 97.33, 95.83), 3165),
    Row("SBC (3)", "sbc:p=1%", 100, (95.36, 89.19, 83.44), 31655),
)
# Figure 3: each line's product of sparsities is 0.1 %.
GRID = tuple(
    Row(f"1/{steps} x {percent:g}%", f"sbc:p={percent:g}%", steps)
    for steps, percent in ((1, 0.1), (5, 0.5), (20, 2), (50, 5))
)


class Participant:
    """A client: its examples, its Adam, and its residual."""

    def __init__(self, rank: int, spec: str, examples: np.ndarray, given: argparse.Namespace):
        self._client = rounds.Client(spec, rank=rank)
        self._draw = np.random.default_rng([given.seed, rank])
        self._examples, self._given = examples, given
        self._adam: dict | None = None

    def reply(self, download, network, images, labels, steps: int) -> rounds.Reply:
        """Trains `network`, which all clients use in turn."""
        named = dict(network.named_parameters())
        with torch.no_grad():
            for name, array in self._client.receive(download).items():
                named[name].copy_(torch.from_numpy(array))
        optimizer = torch.optim.Adam(network.parameters(), lr=self._given.lr, fused=True)
        if self._adam is not None:
            optimizer.load_state_dict(self._adam)
        for _ in range(steps):
            chosen = torch.from_numpy(self._draw.choice(self._examples, self._given.batch))
            optimizer.zero_grad()
            cross_entropy(network(scale(images[chosen])), labels[chosen]).backward()
            optimizer.step()
        momentum = {n: optimizer.state[p]["exp_avg"].numpy() for n, p in named.items()}
        trained = {name: parameter.detach().numpy() for name, parameter in named.items()}
        masked = [momentum] if self._client.spec.startswith(("sbc", "topk")) else []
        reply = self._client.reply(trained, len(self._examples), momentum=masked)
        self._adam = optimizer.state_dict()
        return reply


def examples_of(labels: np.ndarray, given: argparse.Namespace) -> list[np.ndarray]:
    """Each client's examples: equal random shares, or two shards of the examples sorted by
    class."""
    draw = np.random.default_rng(given.seed)
    if given.split == "iid":
        return np.array_split(draw.permutation(len(labels)), given.clients)
    shards = np.array_split(np.argsort(labels, kind="stable"), 2 * given.clients)
    order = draw.permutation(len(shards))
    return [np.concatenate([shards[a], shards[b]]) for a, b in order.reshape(-1, 2)]


def train(row: Row, image_set: ImageSet, given: argparse.Namespace) -> dict:
    """A finished row: accuracy after each round, and a client's mean bytes in both directions."""
    network = make_lenet(given.seed)
    start = {name: p.detach().numpy() for name, p in network.named_parameters()}
    # All clients are honest and have equal numbers of samples: none is refused, as in the paper.
    server = rounds.Server(start, up=row.spec, down=None, max_norm=None)
    images = torch.from_numpy(image_set.train_images.copy())
    labels = torch.from_numpy(image_set.train_labels.astype(np.int64))
    shares = examples_of(image_set.train_labels, given)
    clients = [Participant(i, row.spec, share, given) for i, share in enumerate(shares)]
    evaluator, curve, up = Evaluator(image_set), [], 0
    for number in range(-(-given.iterations // row.steps)):
        steps = min(row.steps, given.iterations - number * row.steps)
        server.begin()
        for rank, client in enumerate(clients):
            reply = client.reply(server.download(rank), network, images, labels, steps)
            server.take(rank, reply)
            up += len(reply.frame)
        done = number * row.steps + steps
        _load(network, server.finish())
        if done == given.iterations or done // given.every > (done - steps) // given.every:
            curve.append([done, up / len(clients), 100 * evaluator.accuracy(network)])
            print(f"  {row.name}: {done} iterations, {curve[-1][2]:.1f} %", flush=True)
    raw = 4 * sum(array.size for array in start.values()) * given.iterations
    smaller = raw / (up / len(clients))
    return {"name": row.name, "accuracy": curve[-1][2], "smaller": smaller, "curve": curve}


def _load(network: torch.nn.Module, model: dict[str, np.ndarray]) -> None:
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(torch.from_numpy(model[name]))


def table_text(rows: list[dict], given: argparse.Namespace) -> str:
    """The results next to the paper's, in Markdown."""
    column = {("iid", 100): 0, ("iid", 400): 1, ("two", 100): 2}.get((given.split, given.clients))
    lines = [
        "| method | accuracy | times smaller | the paper's accuracy | its times smaller |",
        "| --- | --- | --- | --- | --- |",
    ]
    for found in rows:
        row = next(r for r in TABLE + GRID if r.name == found["name"])
        paper = f"{row.paper[column]:.1f} %" if row.paper and column is not None else "-"
        smaller = f"{row.smaller:,}" if row.smaller else "-"
        lines.append(
            f"| {row.name} | {found['accuracy']:.1f} % | {found['smaller']:,.0f} | {paper} "
            f"| {smaller} |"
        )
    return "\n".join(lines)


def plot(rows: list[dict], path: Path) -> None:
    """Plots accuracy against the bytes that a client has sent."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for row in rows:
        _, sent, accuracy = zip(*row["curve"], strict=True)
        axes.plot(sent, accuracy, marker="o", markersize=3, label=row["name"])
    axes.set(xscale="log", xlabel="bytes that a client has sent", ylabel="test accuracy, %")
    axes.legend()
    figure.savefig(path, bbox_inches="tight")
    pyplot.close(figure)


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = make_parser("lab.papers.sbc.federated", __doc__)
    parser.add_argument("--clients", type=int, default=100, help="default 100")
    parser.add_argument("--split", choices=("iid", "two"), default="iid")
    parser.add_argument(
        "--iterations", type=int, default=100, help="of each client; the paper's: 2,500"
    )
    parser.add_argument("--every", type=int, default=50, help="iterations from test to test")
    parser.add_argument("--batch", type=int, default=8, help="the paper's: 8, of 400 clients 2")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", nargs="*", default=None, help="names of the table's rows")
    parser.add_argument("--grid", action="store_true", help="figure 3's rows too")
    parser.add_argument("--data", type=Path, default=None, help="folder of MNIST's idx files")
    parser.add_argument("--out", type=Path, default=Path("out/sbc-federated"))
    return parser.parse_args(argv)


def run(given: argparse.Namespace) -> None:
    """Trains every missing row, then writes the table and the plot."""
    torch.set_num_threads(1)  # a batch of 8 gains nothing from more
    rows = [row for row in TABLE if given.rows is None or row.name in given.rows]
    rows += GRID if given.grid else ()
    images = load_image_set(given.data or data_folder() / "mnist")
    given.out.mkdir(parents=True, exist_ok=True)
    kept_at = given.out / "rows.json"
    key = f"{given.clients} {given.split} {given.iterations} {given.batch} {given.lr} {given.seed}"
    kept = json.loads(kept_at.read_text()) if kept_at.exists() else {}
    finished = kept.setdefault(key, {})
    for number, row in enumerate(rows):
        print(f"{number + 1} of {len(rows)}: {row.name}", flush=True)
        if row.name not in finished:
            finished[row.name] = train(row, images, given)
            part = kept_at.with_suffix(".part")
            part.write_text(json.dumps(kept))
            part.replace(kept_at)
    found = [finished[row.name] for row in rows]
    print(table_text(found, given))
    plot(found, given.out / "accuracy-bytes.svg")


main = main_of("lab.papers.sbc.federated", parse, run, DataError, deltawire.DeltawireError)


if __name__ == "__main__":
    sys.exit(main())
