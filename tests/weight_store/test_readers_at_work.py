"""Readers that update while the writer publishes: each sees whole versions alone."""

import threading

import torch
from deltawire import weight_store
from deltawire.weights.store.model_tensors import Model

from tests.weight_store.store_models import bits_of, small_model, step

VERSIONS = 60


def test_nobody_sees_a_mixture(place: str) -> None:
    """Three readers, and for each a thread that serves from its weights, with collection."""
    model = small_model()
    published = {}
    writer = weight_store.Store(place, merged=(4,), snapshot_every=8, keep=6, grace=4)
    writer.publish(model, 0)
    published[Model(model).digest()] = 0
    done = threading.Event()
    problems: list[BaseException] = []
    served: set[int] = set()

    def guarded(work, *arguments) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                problems.append(error)
                done.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def read(weights: dict[str, torch.Tensor], lock: threading.Lock, ended: threading.Event):
        store = weight_store.Store(place)
        at = 0
        try:
            while at < VERSIONS - 1 and not problems:
                at = store.update(weights, from_version=at, lock=lock)
        finally:
            ended.set()

    def serve(weights: dict[str, torch.Tensor], lock: threading.Lock, ended: threading.Event):
        last = -1
        while not ended.is_set() or last < 0:
            with lock:
                digest = Model(weights).digest()
            assert published[digest] >= last
            last = published[digest]
            served.add(last)

    threads, replicas = [], []
    for _ in range(3):
        weights, lock, ended = writer.load(0), threading.Lock(), threading.Event()
        replicas.append(weights)
        threads.append(guarded(read, weights, lock, ended))
        threads.append(guarded(serve, weights, lock, ended))
    for number in range(1, VERSIONS):
        step(model, number)
        published[Model(model).digest()] = number
        writer.publish(model, number)
    for thread in threads:
        thread.join(60)
    assert not problems, problems
    assert len(served) > 2
    assert all(bits_of(weights) == bits_of(model) for weights in replicas)
