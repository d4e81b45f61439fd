"""What every Python test stands on."""

import signal

_FRESH = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
}


def pytest_configure(config):
    """Undoes inherited ignoring of signals, for this run and the programs that it starts.

    A script's background jobs ignore SIGINT, `nohup` ignores SIGHUP, and both hand that down: tests
    of Ctrl-C and of a closed terminal would wait for ever.
    """
    for number, handler in _FRESH.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
