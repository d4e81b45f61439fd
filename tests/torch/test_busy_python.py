"""Python's interpreter lock: what an exchange needs of it, next to threads that keep it."""

import ctypes
import os
import subprocess
import sys
import threading

import deltawire.torch
import pytest
import torch
from deltawire import _core
from deltawire.torch.quick_turns import INTERVAL, QuickTurns
from models import Net, backward, train_step, wrapped
from ranks import AT_ONCE, results

BUCKETS = 3


def keeps_the_lock(rank, world_size, report, fifo):
    """Rank 0 keeps its Python's lock, once a step's buckets are submitted, until rank 1 has the
    whole step."""
    session = deltawire.torch.register(wrapped(Net()), "fp32")._session
    line = os.open(fifo, os.O_RDWR)  # both ways, so that nobody waits for the other end
    values = torch.full((BUCKETS, 100), float(rank))
    ends, all_ended = [], threading.Event()

    def ended(error, report):
        ends.append(str(error) if error else report.element_count)
        if len(ends) == BUCKETS:
            all_ended.set()

    for bucket, row in enumerate(values):
        step = _core.Step(0, bucket, bucket == BUCKETS - 1)
        session.submit([(f"row {bucket}", row.data_ptr(), (100,))], step, 10_000, ended)
    if rank == 0:
        ctypes.PyDLL(None).read(line, ctypes.create_string_buffer(1), 1)  # with the lock
    assert all_ended.wait(2 * AT_ONCE)
    if rank == 1:
        os.write(line, b".")
    session.close()
    return ends, values.unique().tolist()


def test_a_step_ends_on_all_ranks_while_one_of_them_has_no_turn_in_python(tmp_path):
    """The communication thread never needs the lock: not for one bucket of a step, nor its vote."""
    fifo = tmp_path / "line"
    os.mkfifo(fifo)
    assert results(keeps_the_lock, 2, str(fifo)) == [([100] * BUCKETS, [0.5])] * 2


def intervals_seen(rank, world_size, report, options):
    """The switch interval in a step's buckets, and after steps."""
    before = sys.getswitchinterval()
    model = wrapped(Net(), **options)
    hook = deltawire.torch.register(model, "3lc")
    inside, submit = [], hook._submit

    def spy(*given):
        inside.append(sys.getswitchinterval())
        submit(*given)

    hook._submit = spy
    after = []
    for step in range(3):
        backward(model, rank, step)
        after.append(sys.getswitchinterval())
    sys.setswitchinterval(2e-3)
    backward(model, rank, 3)
    after.append(sys.getswitchinterval())
    sys.setswitchinterval(before)
    with model.join(throw_on_early_termination=False):
        for step in range(1 + 2 * rank):  # rank 0 only mirrors the last two
            train_step(model, rank, step)
    after.append(sys.getswitchinterval())
    hook.close()
    return before, inside, after


@pytest.mark.parametrize("options", [{}, {"static_graph": True}])
def test_turns_are_quick_while_buckets_are_in_flight_and_then_as_the_program_wants(options):
    for before, inside, after in results(intervals_seen, 2, options):
        assert len(inside) > 10 and inside == [pytest.approx(INTERVAL)] * len(inside)
        assert after == pytest.approx([before, before, before, 2e-3, before])


def raises(rank, world_size, report):
    """A step that fails."""
    before = sys.getswitchinterval()
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc")
    backward(model, rank, 0)
    with pytest.raises(RuntimeError):
        (model(torch.ones(1, 64)).sum() * float("nan")).backward()
    hook.close()
    return before, sys.getswitchinterval()


def test_the_interval_is_the_programs_again_after_an_error():
    for before, after in results(raises, 2):
        assert after == pytest.approx(before)


def test_hooks_share_the_interval():
    before = sys.getswitchinterval()
    one, other = QuickTurns(), QuickTurns()
    try:
        one.begin()
        one.begin()  # the step before was cut short
        other.begin()
        one.end()
        assert sys.getswitchinterval() == pytest.approx(INTERVAL)
        one.end()
        other.end()
        assert sys.getswitchinterval() == pytest.approx(before)
        one.begin()
        sys.setswitchinterval(3e-3)
        one.end()
        assert sys.getswitchinterval() == pytest.approx(3e-3), "the program's own wish stays"
        sys.setswitchinterval(INTERVAL / 2)
        one.begin()
        assert sys.getswitchinterval() == pytest.approx(INTERVAL / 2)
        one.end()
        assert sys.getswitchinterval() == pytest.approx(INTERVAL / 2)
    finally:
        sys.setswitchinterval(before)


def test_the_import_leaves_the_compiler_out():
    """torch._dynamo, sympy and onnx take longer to import than torch itself."""
    program = (
        "import sys, torch; before = set(sys.modules); import deltawire.torch; "
        "print(*set(sys.modules) - before)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(shown.stdout.split())
    heavy = {"sympy", "mpmath", "torch._dynamo", "torch._inductor", "torch.onnx"}
    assert "deltawire.torch.parameter_server" in loaded
    assert not loaded & heavy
