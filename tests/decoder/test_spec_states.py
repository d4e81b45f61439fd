"""The reader of saved states written from the documents, on the golden states."""

import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import spec_states
from refusals import raised
from spec_hashes import DecodeError, crc32c

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from states import STEPS, arrays_of  # noqa: E402

STATES = Path(__file__).resolve().parents[1] / "golden" / "states"
# What tests/golden/states.py trains: a matrix, a tensor that travels raw, a vector. None is cut.
PARTS = [("w", 0, 1000, (25, 40)), ("b", 0, 5, (5,)), ("v", 0, 300, (300,))]
PULL = "3lc:s=1.75,mode=auto,runs=on"


def read(name: str) -> bytes:
    """A golden state."""
    return (STATES / f"{name}.state").read_bytes()


@pytest.mark.parametrize(
    ("name", "push"), [("server", "3lc:s=1,mode=auto,runs=on"), ("late.server", "fp32")]
)
def test_server(name: str, push: str) -> None:
    """Parts, steps and moments; the model that workers have; and what it belongs to."""
    state = spec_states.server_state(read(name))
    assert (state.step, state.learning_rate) == (STEPS, 0.125)
    assert [(part.number, part.view.size) for part in state.parts] == [(0, 1000), (1, 5), (2, 300)]
    assert state.moments.keys() == {"w@0", "b@0", "v@0"}
    assert all(kept.steps == STEPS and len(kept.lists) == 2 for kept in state.moments.values())
    assert state.hash == spec_states.served_hash(push, PULL, spec_states.layout_hash(PARTS))
    # What was not sent yet waits in the pull channel's residual; a raw part has none.
    waiting = {(entry.name, entry.first): entry.residual for entry in state.pull}
    assert waiting.keys() == {("v", 0), ("w", 0)}
    for (tensor, first, *_), part in zip(PARTS, state.parts, strict=True):
        kept = waiting.get((tensor, first), np.zeros_like(part.view))
        np.testing.assert_allclose(kept, part.master - part.view, atol=1e-6)
        assert tensor == "b" or np.any(kept)


def test_worker() -> None:
    """No late gradient, and residuals of what its codec left."""
    state = spec_states.worker_state(read("worker"))
    assert (state.step, state.hash) == (STEPS, spec_states.server_state(read("server")).hash)
    assert [held.size for held, _ in state.parts] == [0, 0, 0]
    assert [len(entries) for _, entries in state.parts] == [1, 0, 1]


def test_late_worker() -> None:
    """Gradients that no server counted lie in the state: their sum, bit for bit."""
    state = spec_states.worker_state(read("late.worker"))
    early = spec_states.worker_state(read("late.early-worker"))
    assert (state.step, state.hash) == (early.step, early.hash)
    assert all(held.size == 0 for held, _ in early.parts)
    for (held, entries), (name, *_) in zip(state.parts, PARTS, strict=True):
        total = np.zeros(held.size, np.float32)
        for step in range(STEPS):
            total = total + arrays_of(2, step)[name].ravel()
        assert held.tobytes() == total.tobytes()
        assert entries == []


def test_powersgd() -> None:
    """One matrix with its residual and Q, the same on both ranks; and direct's channels."""
    ranks = [spec_states.powersgd_state(read(f"powersgd-rank-2.{rank}")) for rank in range(2)]
    for rank, (rank_of_factors, matrices, world, own, channels) in enumerate(ranks):
        assert (rank_of_factors, world, own, channels) == (2, 2, rank, [[], []])
        assert matrices.keys() == {"w"}
        matrix = matrices["w"]
        assert (matrix.scale, matrix.residual.shape, matrix.q.shape) == (1, (25, 40), (40, 2))
    q, other = (matrices["w"].q for _, matrices, *_ in ranks)
    assert np.array_equal(q, other)
    # The next step's Q is M^T P with P orthonormal: of full rank, and no larger than the mean.
    assert np.linalg.matrix_rank(q) == 2


READERS = {
    "server": spec_states.server_state,
    "late.worker": spec_states.worker_state,
    "powersgd-rank-2.1": spec_states.powersgd_state,
}


@pytest.mark.parametrize("name", READERS)
def test_damage(name: str) -> None:
    """No byte may change or be missing unnoticed, and another version is named."""
    state = read(name)
    newer = bytearray(state)
    struct.pack_into("<I", newer, 8, 2)
    assert raised(DecodeError, READERS[name], bytes(newer)).kind == "UnsupportedVersion"
    for at in range(0, len(state), 97):
        flipped = state[:at] + bytes([state[at] ^ 16]) + state[at + 1 :]
        for damaged in (state[:at], flipped):
            with pytest.raises(DecodeError):
                READERS[name](damaged)


def test_bytes_beyond() -> None:
    """A good checksum doesn't make up for bytes that belong to nothing."""
    body = read("worker")[:-4] + bytes(3)
    caught = raised(DecodeError, spec_states.worker_state, body + struct.pack("<I", crc32c(body)))
    assert caught.kind == "Corrupt"


def test_the_pages_example_of_a_layout_hash() -> None:
    """Of a whole tensor and of its second half: dims of the part, their number of the whole."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "format.md").read_text()
    for first, count, due in ((0, 1000, 0xFDC5381F), (500, 500, 0x3B25429C)):
        assert spec_states.layout_hash([("w", first, count, (25, 40))]) == due
        assert f"0x{due:08X}" in page
