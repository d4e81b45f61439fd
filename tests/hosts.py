"""Network namespaces as hosts: each has its own loopback and one address."""

import contextlib
from collections.abc import Iterator

import pytest

from lab.ranks.namespaces import NamespaceError, Namespaces


@contextlib.contextmanager
def hosts(count: int = 2, rate: float | None = None) -> Iterator[Namespaces]:
    """So many hosts, with links of this rate in bytes a second; skips the test, with the reason,
    where none can be made."""
    try:
        network = Namespaces(count, rate).__enter__()
    except NamespaceError as cause:
        pytest.skip(f"{count} hosts: {cause}")
    try:
        yield network
    finally:
        network.remove()
