"""Nobody who reads under the lock sees a mixture of two versions, while weights are updated."""

import contextlib
import threading
import time

from deltawire.weights.store.model_tensors import Model, ModelTensor

from tests.live.live_pairs import publisher_of, subscriber_of, train, weights

VERSIONS = 25


def test_nobody_serves_a_mixture(monkeypatch) -> None:
    """A server for each subscriber hashes what it would serve from, again and again."""
    real = ModelTensor.write

    def slow(tensor: ModelTensor, data) -> None:
        real(tensor, data)
        time.sleep(0.003)  # between the tensors of an update

    monkeypatch.setattr(ModelTensor, "write", slow)
    model = weights()
    known: dict[str, int] = {}
    problems: list[str] = []
    served: set[int] = set()
    done = threading.Event()
    with publisher_of(model) as publisher:
        known[Model(model).digest()] = 0
        publisher.publish()
        publisher.flush()
        replicas = [weights() for _ in range(2)]
        subscribers = [subscriber_of(each, publisher) for each in replicas]

        def serve(number: int) -> None:
            last = -1
            while not done.is_set():
                with subscribers[number].reading():
                    digest = Model(replicas[number]).digest()
                    version = known.get(digest, -2)
                    said = subscribers[number].version
                if version < last or (said is not None and said != version):
                    problems.append(f"version {version} after {last}, said to be {said}")
                    return
                last = version
                served.add(version)
                time.sleep(0.0005)  # others need the interpreter, too

        threads = [threading.Thread(target=serve, args=(each,)) for each in range(2)]
        for thread in threads:
            thread.start()
        try:
            for number in range(1, VERSIONS):
                train(model, number)
                known[Model(model).digest()] = number
                publisher.publish(number)
                publisher.flush()
                for subscriber in subscribers:
                    subscriber.wait(number, 20)
                    assert subscriber.update() == number
        finally:
            done.set()
            for thread in threads:
                thread.join(20)
            for subscriber in subscribers:
                subscriber.close()
    assert not problems, problems
    assert len(served) > 5


def test_the_version_changes_with_the_weights() -> None:
    """Whoever reads both under the lock has a pair."""
    model = weights()
    with publisher_of(model) as publisher, subscriber_of(weights(), publisher) as subscriber:
        for number in range(2):
            publisher.publish()
            publisher.flush()
            subscriber.wait(number, 20)
            train(model, number)
            seen = []

            @contextlib.contextmanager
            def lock(seen=seen):
                yield
                seen.append(subscriber.version)

            subscriber._following.fetched.update(subscriber.model, lock())
            assert seen == ([1] if number else [])
