"""What every Python test stands on."""

import signal


def pytest_configure(config):
    """A program started in the background of a script ignores SIGINT, and hands that down to every
    program it starts: the tests of Ctrl-C then wait for ever. Undo it for this run and its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
