"""A system that starts no more threads, as in a container whose limit is reached."""

import contextlib
import ctypes
from collections.abc import Iterator

import deltawire
import numpy as np
import pytest
from deltawire import patches


@contextlib.contextmanager
def no_more_threads() -> Iterator[None]:
    """No stack can be had of the size that every new thread asks for."""
    library = ctypes.CDLL(None)
    before, attributes = (ctypes.create_string_buffer(64) for _ in range(2))  # pthread_attr_t
    for each in (before, attributes):
        assert library.pthread_getattr_default_np(each) == 0
    assert library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 56)) == 0
    assert library.pthread_setattr_default_np(attributes) == 0
    try:
        yield
    finally:
        library.pthread_setattr_default_np(before)


def test_a_session_says_that_no_thread_can_be_started() -> None:
    with (
        no_more_threads(),
        pytest.raises(deltawire.DeltawireError, match="no thread for the ") as caught,
    ):
        deltawire.Session("fp32", rank=0, world_size=1)
    assert caught.value.code == "System"
    with deltawire.Session("fp32", rank=0, world_size=1) as session:
        session.all_reduce({"x": np.ones(3, np.float32)})


def test_calls_do_their_work_alone() -> None:
    before = np.zeros(200_000, np.float32)
    after = before + 1
    with no_more_threads():
        assert deltawire.encode(after, "3lc")
        patches.apply(patches.make(before, after), before)
    assert (before == after).all()
