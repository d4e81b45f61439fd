"""A worker of the demo: one rank, for all rows. Started by `lab.demo.crew`, which talks to it in
JSON lines.

The first line is the job; every later one is a row to run; the end of the stream is the end of the
worker."""

import dataclasses
import datetime
import json
import os
import queue
import socket
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist

from lab.data.batches import Batches
from lab.demo.methods import Method
from lab.demo.settings import Settings
from lab.demo.training import Place, RowFailed, run_row
from lab.models.evaluate import Evaluator


class Line:
    """The line to the controlling process. Its end ends this process, even within a row."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._orders: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def _listen(self) -> None:
        with self._socket.makefile("r") as orders:
            for text in orders:
                self._orders.put(json.loads(text))
        os._exit(0)

    def next_order(self) -> dict:
        """Waits for it."""
        return self._orders.get()

    def tell(self, news: dict) -> None:
        """Sends an event."""
        self._socket.sendall(json.dumps(news).encode() + b"\n")


def main() -> None:
    """Never returns: the end of the line is the end."""
    line = Line(int(sys.argv[1]))
    job = line.next_order()
    settings = Settings(**job["settings"])
    _join(job, settings)
    images = settings.workload.load_images(Path(settings.data))
    evaluator = Evaluator(images, job["rank"], settings.ranks)
    tell = line.tell if job["rank"] == 0 else lambda news: None
    line.tell({"event": "ready"})
    while True:
        order = line.next_order()
        method = Method(**order["method"])
        place = Place(
            dataclasses.replace(settings, seed=order["seed"]),
            Batches(
                images,
                seed=order["seed"],
                batch=settings.batch,
                place=(job["rank"], settings.ranks),
            ),
            evaluator,
            job["interface"],
        )
        try:
            line.tell({"event": "done", "report": run_row(place, method, tell)})
        except (RowFailed, RuntimeError, ValueError, TypeError) as cause:
            line.tell({"event": "failed", "error": " ".join(str(cause).split())})


def _join(job: dict, settings: Settings) -> None:
    """The process group, once for all rows."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = job["group_interface"]
    dist.init_process_group(
        "gloo",
        init_method=f"file://{job['store']}",
        rank=job["rank"],
        world_size=settings.ranks,
        timeout=datetime.timedelta(seconds=settings.timeout),
    )


if __name__ == "__main__":
    main()
