"""Versions of a model: a store into which a trainer publishes, and from which readers update.

A store has a snapshot of all weights now and then, patches (`deltawire.patches`) between versions,
and a manifest that names them. A version takes only the bytes of its changes::

    store = weight_store.Store("/models/policy")
    store.publish(model, version=step)                          # the trainer
    at = store.update(model, from_version=at)                   # each reader
"""

from deltawire.weights.store.manifest import StoredFile, Version
from deltawire.weights.store.store import Store

__all__ = ["Store", "StoredFile", "Version"]
