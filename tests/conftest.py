"""What every Python test stands on."""

import signal


def pytest_configure(config):
    """Undoes an inherited 'ignore SIGINT', for this run and the programs that it starts.

    A script's background jobs ignore SIGINT and hand that down: tests of Ctrl-C would wait for
    ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
