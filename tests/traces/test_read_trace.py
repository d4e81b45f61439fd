"""Traces as docs/reference/traces.md has them: what is written comes back to the bit."""

import errno
import os

import deltawire
import numpy as np
import pytest
from deltawire.traces import TracedGradient, TracedTensor, files
from deltawire.traces.writer import TraceWriter
from made_up import LOSSLESS, TENSORS, assert_same, gradients, same_bits


@pytest.mark.parametrize("spec", [None, LOSSLESS])
def test_what_is_written_comes_back_to_the_bit(tmp_path, spec):
    writer = TraceWriter(tmp_path / "a" / "trace", TENSORS, {"model": 'a "model"\n'}, spec)
    expected = {1: gradients(1), 7: gradients(2, significance=False), 1_000_000: [None] * 4}
    for number, each in expected.items():
        writer.add(number, each)
    trace = deltawire.read_trace(str(tmp_path / "a" / "trace"))
    assert trace.tensors == TENSORS
    assert (trace.model, trace.optimizer, trace.command) == ('a "model"\n', "", "")
    assert trace.step_numbers == writer.step_numbers == tuple(expected)
    assert len(trace) == 3
    for step in trace:
        assert_same(step.gradients, expected[step.number])
    endings = {path.suffix for path in trace.folder.rglob("*/*.*")}
    assert endings == ({".npy"} if spec is None else {".npy", ".dw"})
    on_disk = sum(path.stat().st_size for path in trace.folder.rglob("*/*.*"))
    assert writer.bytes_written == on_disk


def test_only_smaller_files_are_coded(tmp_path):
    random = np.random.default_rng(0)
    arrays = [np.full(4096, 0.5, np.float32)]
    for count in (1, 300, 4096, 262144 * 3):  # bits that no codec makes smaller
        arrays.append(random.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32))
    tensors = [TracedTensor(str(i), each.shape) for i, each in enumerate(arrays)]
    writer = TraceWriter(tmp_path / "trace", tensors, {}, LOSSLESS)
    writer.add(1, list(map(TracedGradient, tensors, arrays)))
    endings = []
    for i, array in enumerate(arrays):
        (written,) = (tmp_path / "trace" / "000001").glob(f"{i}.*")
        np.save(tmp_path / "plain.npy", array)
        coded = len(deltawire.encode(array, LOSSLESS))
        assert written.stat().st_size == min(coded, (tmp_path / "plain.npy").stat().st_size)
        endings.append(written.suffix)
    assert endings[0] == ".dw" and endings[-1] == ".npy"
    found = next(iter(deltawire.read_trace(tmp_path / "trace"))).gradients
    for gradient, array in zip(found, arrays, strict=True):
        assert same_bits(gradient.values, array)


def test_the_first_gradient_decides_on_pairs_and_others_are_converted(tmp_path):
    shape, keys = (3, 4), np.array([1, 5], np.int64)
    tensors = [TracedTensor("begins sparse", shape), TracedTensor("begins dense", shape)]
    values, seen = np.array([2, 3], np.float32), np.array([20, 30], np.float32)
    full = np.arange(12, dtype=np.float32).reshape(shape)
    sparse = [TracedGradient(each, values, keys, seen) for each in tensors]
    dense = [TracedGradient(each, full, None, 2 * full) for each in tensors]
    writer = TraceWriter(tmp_path / "trace", tensors, {})
    writer.add(1, [None, None])  # decides nothing
    writer.add(2, [sparse[0], dense[1]])
    writer.add(3, [dense[0], sparse[1]])
    trace = deltawire.read_trace(tmp_path / "trace")
    assert [each.pairs for each in trace.tensors] == [True, False]
    first, second = trace.load(3).gradients
    assert same_bits(first.keys, np.arange(12))
    assert same_bits(first.values, full.reshape(-1))
    assert same_bits(first.significance, 2 * full.reshape(-1))
    assert same_bits(first.dense(), full)
    spread = np.zeros(shape, np.float32)
    spread[0, 1], spread[1, 1] = 2, 3
    assert same_bits(second.values, spread)
    assert same_bits(second.significance, 10 * spread)
    assert same_bits(trace.load(2).gradients[0].dense(), spread)


def test_a_step_that_breaks_off_leaves_those_before(folder):
    writer = TraceWriter(folder.parent / "other", TENSORS, {})
    writer.add(1, gradients(1))
    before = (writer.folder / "trace.json").read_bytes()

    def interrupted():
        yield from gradients(2)[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.add(2, interrupted())
    assert (writer.folder / "trace.json").read_bytes() == before
    assert sorted(os.listdir(writer.folder)) == ["000001", "trace.json"]
    writer.add(3, gradients(3))
    trace = deltawire.read_trace(writer.folder)
    assert trace.step_numbers == (1, 3)
    assert_same(trace.load(3).gradients, gradients(3))


def test_an_interrupted_step_decides_nothing(tmp_path):
    tensor = TracedTensor("t", (4,))
    writer = TraceWriter(tmp_path / "trace", [tensor], {})

    def interrupted():
        yield TracedGradient(tensor, np.ones(1, np.float32), np.array([2]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.add(1, interrupted())
    writer.add(2, [None])
    assert not deltawire.read_trace(tmp_path / "trace").tensors[0].pairs
    writer.add(3, [TracedGradient(tensor, np.ones(4, np.float32))])
    assert not deltawire.read_trace(tmp_path / "trace").tensors[0].pairs


def test_a_full_disk_is_said_and_leaves_whole_steps(tmp_path, monkeypatch):
    writer = TraceWriter(tmp_path / "trace", TENSORS, {})
    writer.add(1, gradients(1))
    written = []

    def full(*_args):
        written.append(1)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return "x.npy", 1

    monkeypatch.setattr(files, "write_floats", full)
    with pytest.raises(deltawire.DeltawireError, match="step 2 .*No space left.* 1 steps before"):
        writer.add(2, gradients(2))
    assert sorted(os.listdir(writer.folder)) == ["000001", "trace.json"]
    assert [step.number for step in deltawire.read_trace(writer.folder)] == [1]


@pytest.mark.parametrize("call", ["rename", "replace"])
def test_files_and_page_appear_at_once(tmp_path, monkeypatch, call):
    """A step or a page that can't be put in place leaves the old page, whole."""
    writer = TraceWriter(tmp_path / "trace", TENSORS, {})
    writer.add(1, gradients(1))

    def refuse(*_args):
        raise OSError(errno.ENOSPC, "full")

    said = "the 1 steps before it"
    with monkeypatch.context() as patched, pytest.raises(deltawire.DeltawireError, match=said):
        patched.setattr(os, call, refuse)
        writer.add(2, gradients(2))
    assert deltawire.read_trace(writer.folder).step_numbers == (1,)
    writer.add(3, gradients(3))
    found = [step.number for step in deltawire.read_trace(writer.folder)]
    assert found == ([1, 3] if call == "rename" else [1, 2, 3])


def test_folders_specs_and_tensors_that_are_refused(tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    invalid = deltawire.InvalidArgumentError
    for name, said in (("used", "is not empty"), ("file", "is a file"), ("file/x", "is a file")):
        with pytest.raises(invalid, match=said):
            TraceWriter(tmp_path / name, TENSORS, {})
    for spec in ("gcomp", "bf16", "3lc"):
        with pytest.raises(invalid, match="loses bits"):
            TraceWriter(tmp_path / "new", TENSORS, {}, spec)
    with pytest.raises(invalid, match="no codec is named"):
        TraceWriter(tmp_path / "new", TENSORS, {}, "nocodec")
    for tensors in (
        [],
        [TracedTensor("a", (1,)), TracedTensor("a", (2,))],
        [TracedTensor("", (1,))],
        [TracedTensor("a", (1,) * 9)],
        [TracedTensor("a", (1 << 31, 2))],
    ):
        with pytest.raises(invalid):
            TraceWriter(tmp_path / "new", tensors, {})
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "used" / "notes.txt").read_text() == "mine"


def test_steps_that_were_not_recorded_are_no_steps(folder):
    with pytest.raises(KeyError):
        deltawire.read_trace(folder).load(4)


def test_others_files_in_a_traces_folder(tmp_path):
    """A link is replaced and not followed, and a folder that is in the way stays as it is."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    writer = TraceWriter(tmp_path / "trace", TENSORS, {})
    (writer.folder / ".trace.json.partial").symlink_to(victim)
    writer.add(1, gradients(1))
    assert victim.read_bytes() == b"precious"
    (writer.folder / ".000002.partial").mkdir()
    theirs = writer.folder / ".000002.partial" / "0.npy"
    theirs.write_bytes(b"precious")
    with pytest.raises(deltawire.DeltawireError, match="step 2 can't be written"):
        writer.add(2, gradients(2))
    assert theirs.read_bytes() == b"precious"
