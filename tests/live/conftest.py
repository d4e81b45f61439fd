"""Fixtures of the tests of live weights."""

import pytest
from deltawire.weights.live import following

from tests.live.live_pairs import no_threads_left, wait_until
from tests.weight_store.conftest import _without_fsync  # noqa: F401


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch):
    """Subscribers report to the publisher often, and nothing keeps running after a test."""
    monkeypatch.setattr(following, "WAIT_SECONDS", 0.2)
    yield
    wait_until(no_threads_left, "all threads have ended")
