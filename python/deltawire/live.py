"""New weights over TCP: a trainer publishes after its steps, any number of readers follow.

::

    publisher = live.Publisher(model, "0.0.0.0:29700")          # the trainer
    publisher.publish()                                         # after a step

    subscriber = live.Subscriber(model, "trainer:29700")        # each inference server
    subscriber.update()                                         # between batches

Both need the same token, e.g. in DELTAWIRE_TOKEN. `deltawire.torch` has the same classes.
"""

from deltawire.weights.live.publisher import Publisher
from deltawire.weights.live.subscriber import Subscriber
from deltawire.weights.live.tree import ReaderState

__all__ = ["Publisher", "ReaderState", "Subscriber"]
