"""Has programs parse arguments, and none run: a process of its own, as programs change handlers,
settings of libraries, and more when they are imported.

Standard input has, as JSON, a list of [path, module or null, arguments]; standard output gets what
is wrong with each, or "".
"""

import argparse
import contextlib
import io
import json
import os
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_ELSEWHERE = ("flwr", "triton")  # packages that some programs need, and this environment lacks
_parse = argparse.ArgumentParser.parse_args


class _Taken(BaseException):
    """The parser took the arguments."""


def taken(path: Path, module: str | None, words: list[str]) -> str:
    """Starts a program that ends when its arguments are parsed; returns what is wrong, or ""."""

    def parse_and_end(parser, *given):
        _parse(parser, *given)
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        raise _Taken(", ".join(options - set(parser._option_string_actions)))

    argparse.ArgumentParser.parse_args = parse_and_end
    os.nice = lambda more: 0  # it would hold up the programs that follow
    sys.argv = [str(path), *words]
    sys.path[0] = str(ROOT if module else path.parent)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            if module:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(path), run_name="__main__")
    except _Taken as end:
        return f"no option {end}" if str(end) else ""
    except SystemExit as end:
        return f"exit status {end.code}: {said.getvalue()}"
    except ModuleNotFoundError as missing:
        return "" if missing.name.partition(".")[0] in _ELSEWHERE else str(missing)
    return "it ended without parsing"


if __name__ == "__main__":
    wanted = [(Path(path), module, words) for path, module, words in json.load(sys.stdin)]
    json.dump([taken(*each) for each in wanted], sys.stdout)
