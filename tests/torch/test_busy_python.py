"""Python's interpreter lock: what an exchange needs of it, next to threads that keep it."""

import ctypes
import os
import subprocess
import sys
import threading

import deltawire.torch
import torch
from deltawire import _core
from models import Net, wrapped
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
        session.submit([(f"row {bucket}", row.data_ptr(), row.nbytes, (100,))], step, 10_000, ended)
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
    assert "deltawire.torch.server.parameter_server" in loaded
    assert not loaded & heavy
