"""Every test here has a time limit: what can't fail can't hang either."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(120))
