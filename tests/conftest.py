"""What every Python test stands on."""

import gc
import multiprocessing
import os
import signal

import pytest

_FRESH = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
}

# OpenMP's threads spin where they wait for each other, and take the processor from other tests. Set
# before anybody imports PyTorch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Importing PyTorch takes seconds, what DDP imports when the first is made some more, and drawing
# yet another: the fork server does it once for all ranks and demos of all tests. Absent ones it
# leaves out.
multiprocessing.set_forkserver_preload(
    [
        "deltawire.torch",
        "torch._dynamo",
        "torch._functorch.aot_autograd",
        "torch.distributed.fsdp",
        "matplotlib.pyplot",
        "lab.demo.controller",
        "lab.demo.training",
        "pytest",
        "tests.fork_server",
    ]
)


def pytest_configure(config):
    """Undoes inherited ignoring of signals, for this run and the programs that it starts.

    A script's background jobs ignore SIGINT, `nohup` ignores SIGHUP, and both hand that down: tests
    of Ctrl-C and of a closed terminal would wait for ever.
    """
    for number, handler in _FRESH.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collecting tests makes no garbage, and looking for it takes a third of the time. The tests
    themselves run with garbage collected, of what they make alone."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
