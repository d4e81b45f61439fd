"""A trainer publishes a version of its weights every second; eight replicas follow.

    python replicas.py [--versions 10] [--interval 1] [--store FOLDER OR URL]

All are threads of one process here, each with a store of its own, as processes on other machines
would have. One replica goes away and comes back later; one file is damaged on the way. The table
says what each replica read, how many versions it missed, and how long its updates took.
"""

import argparse
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from deltawire.weight_store import Store, Version

LEAVES, LEAVES_AT, RETURNS_AT = 3, 2, 6  # which replica, and at which versions


def make_model() -> torch.nn.Module:
    """The model of trainer and replicas."""
    layers = [torch.nn.Linear(512, 512) for _ in range(4)]
    return torch.nn.Sequential(*layers).bfloat16()


class Replica(threading.Thread):
    """Serves from weights that it updates between batches."""

    def __init__(self, number: int, url: str, last: int) -> None:
        super().__init__(daemon=True)
        self.number, self.last = number, last
        self.store = Store(url)
        self.model = make_model()
        self.serving = threading.Lock()  # held by a batch, and by an update while it writes
        self.at = 0
        self.updates: list[float] = []  # seconds

    def run(self) -> None:
        """Follows until the last version."""
        self.model.load_state_dict(self.store.load(self.at))
        while self.at < self.last:
            newest = self.store.latest()
            away = self.number == LEAVES and LEAVES_AT <= newest < RETURNS_AT
            if newest == self.at or away:
                time.sleep(0.01)
                continue
            began = time.monotonic()
            self.at = self.store.update(self.model, from_version=self.at, lock=self.serving)
            self.updates.append(time.monotonic() - began)


def train(
    model: torch.nn.Module, store: Store, versions: int, interval: float
) -> Iterator[Version]:
    """Publishes versions, the first of which is there; steps of AdamW at a small rate."""
    masters = [each.detach().float().requires_grad_() for each in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-6)
    for version in range(1, versions + 1):
        began = time.monotonic()
        for master in masters:
            master.grad = torch.randn_like(master)
        optimizer.step()
        with torch.no_grad():
            for weights, master in zip(model.parameters(), masters, strict=True):
                weights.copy_(master)
        published = store.publish(model, version)
        sizes = ", ".join(f"{file.bytes:,} from {file.base}" for file in published.files)
        print(f"version {version}: {sizes}", flush=True)
        yield published
        time.sleep(max(0.0, interval - (time.monotonic() - began)))


def damage(folder: Path, published: Version, others: list[Replica]) -> None:
    """Empties a patch that only the replica that is away still wants: a later version has a merged
    one."""
    while any(each.at < published.version and each.is_alive() for each in others):
        time.sleep(0.01)
    empty = folder / "empty"
    empty.touch()  # not the file itself, which may be mapped into memory
    empty.replace(folder / "files" / published.files[0].name)


def main() -> None:
    """Trains and prints the replicas' table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--versions", type=int, default=10)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between versions")
    parser.add_argument("--store", help="a folder or URL; without it a temporary folder")
    options = parser.parse_args()
    warnings.simplefilter("always", RuntimeWarning)
    with tempfile.TemporaryDirectory() as folder:
        url = options.store or folder
        with Store(url, merged=(4,)) as store:
            model = make_model()
            store.publish(model, 0)
            replicas = [Replica(number, url, options.versions) for number in range(8)]
            for replica in replicas:
                replica.start()
            for published in train(model, store, options.versions, options.interval):
                if published.version == LEAVES_AT + 1 and not options.store:
                    damage(Path(folder), published, [r for r in replicas if r.number != LEAVES])
            for replica in replicas:
                replica.join(60)
    print("replica  version  updates  slowest  bytes read  same weights")
    for replica in replicas:
        same = all(map(torch.equal, replica.model.parameters(), model.parameters()))
        slowest = max(replica.updates, default=0)
        print(
            f"{replica.number:7}  {replica.at:7}  {len(replica.updates):7}  {slowest:5.2f} s"
            f"  {replica.store.bytes_read:10,}  {'yes' if same else 'NO'}"
        )


if __name__ == "__main__":
    main()
