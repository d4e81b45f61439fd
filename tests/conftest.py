"""Settings of all Python tests."""

import gc
import multiprocessing
import os
import signal
from multiprocessing import forkserver

import pytest
from ports import kept_port

_FRESH = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
}

# OpenMP's threads spin while they wait for each other, and take the processor from other tests. It
# reads this when PyTorch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Importing PyTorch takes seconds; so do the modules that the first DDP imports, and matplotlib. The
# fork server imports them once for the ranks and demos of all tests; it skips those not installed.
multiprocessing.set_forkserver_preload(
    [
        "deltawire.torch",
        "torch._dynamo",
        "torch._functorch.aot_autograd",
        "torch.distributed.checkpoint.state_dict",
        "torch.distributed.fsdp",
        "matplotlib.pyplot",
        "lab.demo.controller",
        "lab.demo.training",
        "pytest",
        "tests.fork_server",
    ]
)


@pytest.fixture
def address():
    """Where a rank 0 may listen."""
    with kept_port() as port:
        yield f"127.0.0.1:{port}"


def pytest_configure(config):
    """Undoes inherited ignoring of signals, for this run and the programs that it starts.

    A script's background jobs ignore SIGINT, `nohup` ignores SIGHUP, and both hand that down: tests
    of Ctrl-C and of a closed terminal would wait forever.
    """
    for number, handler in _FRESH.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_sessionstart(session):
    """Starts the fork server of each of pytest-xdist's workers, which then imports while they
    collect. Else the first test to need it would wait for that, two minutes on a busy machine."""
    if hasattr(session.config, "workerinput"):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        capture.resume_global_capture()  # a failed test shows what its ranks have printed
        forkserver.ensure_running()
        capture.suspend_global_capture()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Turns garbage collection off while tests are collected: that makes no garbage, and looking
    for it would take a third of the time. Tests run with it on, for objects made after that."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
