"""What the tests of live weights share."""

import threading
import time
from collections.abc import Callable

import numpy as np
from deltawire import _core, live
from deltawire.weights.live import messages
from deltawire.weights.live.connection import Connection, secrets_of

TOKEN = b"0123456789abcdef0123456789abcdef"
SECRETS = secrets_of(TOKEN, None)
ANYWHERE = "127.0.0.1:0"


def weights(seed: int = 1, count: int = 20_000) -> dict[str, np.ndarray]:
    """A model of two float16 tensors."""
    draw = np.random.default_rng(seed)
    return {
        "first": draw.standard_normal(count).astype(np.float16),
        "second": draw.standard_normal((count // 100, 10)).astype(np.float16),
    }


def train(model: dict[str, np.ndarray], number: int) -> None:
    """Moves one weight in fifty by a unit in the last place."""
    for each in model.values():
        each.reshape(-1).view(np.int16)[number % 50 :: 50] += 1


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Whether all bits are equal."""
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


def publisher_of(model: object, **settings) -> live.Publisher:
    """At any free port."""
    return live.Publisher(model, ANYWHERE, token=TOKEN, **settings)


def subscriber_of(model: object, publisher: live.Publisher, **settings) -> live.Subscriber:
    return live.Subscriber(model, publisher.address, token=TOKEN, **settings)


def reader_by_hand(address: str, hello: bytes = messages.hello()) -> Connection:
    """A line to a server, on which the first message was sent."""
    where = _core.parse_endpoint(address, "address")
    line = Connection(_core.call_at_door(where, *SECRETS, 20_000), "the publisher")
    line.send(hello)
    return line


def publish(publisher: live.Publisher) -> int:
    """A version that readers can fetch."""
    number = publisher.publish()
    publisher.flush(30)
    return number


def arrive(publisher: live.Publisher, subscriber: live.Subscriber) -> None:
    """A version that the subscriber has fetched."""
    subscriber.wait(publish(publisher), 20)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds} s still not: {what}"
        time.sleep(0.01)


def no_threads_left() -> bool:
    return not [each for each in threading.enumerate() if each.name.startswith("deltawire")]
