"""Entry point: parses first, so that --help and wrong usage don't wait for PyTorch."""

import shlex
import signal
import sys

from lab.demo.arguments import parse


def _terminate(number: int, frame: object) -> None:
    """Raises an exception, so that workers and namespaces are cleaned up."""
    raise SystemExit(128 + number)


def main() -> int:
    """Runs the demo and returns its exit status."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        request = parse(sys.argv[1:])
        from lab.demo.controller import run

        return run(request, command=shlex.join(["python", "-m", "lab.demo", *sys.argv[1:]]))
    except KeyboardInterrupt:
        print("demo: interrupted; nothing was written", file=sys.stderr)
        return 130
    except ImportError as cause:
        print(
            f"demo: {cause}; build the project and install its Python packages first: make demo "
            "does both",
            file=sys.stderr,
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
