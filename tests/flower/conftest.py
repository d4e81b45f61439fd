"""Flower's log as pytest sees it."""

import logging

import pytest


@pytest.fixture(autouse=True)
def flower_says_to_us():
    """Flower's logger does not propagate, and caplog would miss it."""
    logger = logging.getLogger("flwr")
    before, logger.propagate = logger.propagate, True
    yield
    logger.propagate = before
