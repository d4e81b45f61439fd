"""Runs the rows one after the other and hands the results on."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from lab.demo.arguments import Request
from lab.demo.crew import Crew, CrewFailed
from lab.demo.output import write_results
from lab.demo.progress import make_progress
from lab.demo.results import add_ratios, busy_warning, failed_row, make_row
from lab.demo.table import print_table
from lab.idx import DataError, load_image_set
from lab.namespaces import NamespaceError, Namespaces


class _CannotStart(Exception):
    """One line: what is missing."""


def run(request: Request, command: str) -> int:
    """The whole demo; gives the exit status."""
    rows: list[dict] = []
    interrupted = False
    try:
        _check_before_start(request)
        _run_rows(request, rows)
    except (DataError, NamespaceError, _CannotStart) as cause:
        print(f"demo: {cause}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if not rows:
            raise
        interrupted = True
    add_ratios(rows)
    warnings = [warning for warning in [busy_warning(rows)] if warning is not None]
    if interrupted:
        warnings.append(
            f"interrupted: {len(rows)} of {len(request.methods)} rows were done, and stand here"
        )
    try:
        report = write_results(rows, request, command, warnings)
    except OSError as cause:
        print(f"demo: --out {request.out}: can't write there ({cause.strerror})", file=sys.stderr)
        return 1
    print_table(rows, request.settings)
    print(f"report: {report}")
    for warning in warnings:
        print(f"demo: {warning}", file=sys.stderr)
    return 130 if interrupted else _status(rows)


def _check_before_start(request: Request) -> None:
    """What would spoil the demo only after minutes of training."""
    images = load_image_set(request.data)
    taken = request.settings.ranks * request.settings.batch
    if taken > len(images.train_labels):
        raise _CannotStart(
            f"a step takes {request.settings.ranks} x {request.settings.batch} images, but "
            f"{request.data} "
            f"has {len(images.train_labels):,} to train with; lower --batch or --ranks"
        )
    if any(method.spec is not None for method in request.methods):
        import deltawire.torch  # noqa: F401  the caller reports an ImportError
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise _CannotStart(f"--out {request.out}: can't be made ({cause.strerror})") from cause
    if not os.access(request.out, os.W_OK):
        raise _CannotStart(f"--out {request.out}: can't be written to; choose another directory")


def _run_rows(request: Request, rows: list[dict]) -> None:
    """Appends a row as soon as it is done."""
    settings = request.settings
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deltawire-demo-")))
        namespaces = None
        if settings.namespaces:
            namespaces = Namespaces(settings.ranks, settings.bytes_per_second)
            stack.enter_context(namespaces)
        crew = stack.enter_context(Crew(settings, folder, namespaces))
        progress = stack.enter_context(make_progress(settings, len(request.methods)))
        for method in request.methods:
            progress.row_started(method.label)
            try:
                row = make_row(method, crew.run_row(method, progress.news), settings)
            except CrewFailed as cause:
                row = failed_row(method, str(cause), settings)
            rows.append(row)
            progress.row_ended(row)


def _status(rows: list[dict]) -> int:
    """0, or 1 with a line for each row that is not as it must be."""
    status = 0
    for row in rows:
        if row["failed"] is not None:
            print(f"demo: {row['method']} failed: {row['failed']}", file=sys.stderr)
            status = 1
        elif not row["bit_equal"]:
            print(f"demo: {row['method']}: the ranks' parameters differ", file=sys.stderr)
            status = 1
    return status
