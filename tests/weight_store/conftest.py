"""Fixtures of the store's tests."""

import os

import pytest

from tests.weight_store.store_models import place  # noqa: F401


@pytest.fixture(autouse=True)
def _without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine crashes here, and a busy disk takes a second for each."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)
