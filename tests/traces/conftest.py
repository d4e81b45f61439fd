"""A trace in a folder."""

import pytest
from deltawire.traces.writer import TraceWriter
from made_up import TENSORS, gradients


@pytest.fixture
def folder(tmp_path):
    """A trace of two steps, values of the second without significance and one of them missing."""
    words = {"model": "a model", "optimizer": "SGD, lr=0.1", "command": "python train.py"}
    writer = TraceWriter(tmp_path / "trace", TENSORS, words)
    writer.add(3, gradients(1))
    writer.add(20, [*gradients(2, significance=False)[:3], None])
    return tmp_path / "trace"
