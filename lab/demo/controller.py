"""Runs the rows one after the other and hands the results on."""

import contextlib
import dataclasses
import itertools
import os
import sys

from lab.data.images import DataError
from lab.demo.arguments import Request
from lab.demo.labels import label_of
from lab.demo.output import used_cores, write_results
from lab.demo.progress import Progress
from lab.demo.results import (
    add_ratios,
    busy_warnings,
    failed_repeat,
    load_warnings,
    make_repeat,
    make_row,
    take_times_out,
)
from lab.demo.table import print_table
from lab.demo.workers import Workers
from lab.ranks.launcher import RanksFailed
from lab.ranks.namespaces import NamespaceError, Namespaces, can_be_made


class _CannotStart(Exception):
    """One line: what is missing."""


def run(request: Request, command: str) -> int:
    """Runs the whole demo and returns its exit status."""
    trainings: dict[str, list[dict]] = {method.name: [] for method in request.methods}
    interrupted = False
    try:
        _check_before_start(request)
        request = _placed(request)
        used = used_cores()
        _train(request, trainings)
    except (DataError, NamespaceError, _CannotStart) as cause:
        advice = "; or pass --no-namespaces" if isinstance(cause, NamespaceError) else ""
        print(f"demo: {cause}{advice}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if not any(trainings.values()):
            raise
        interrupted = True
    settings = request.settings
    rows = [
        make_row(method, trainings[method.name], settings)
        for method in request.methods
        if trainings[method.name]
    ]
    add_ratios(rows)
    warnings = load_warnings(used, len(os.sched_getaffinity(0)))
    warnings += busy_warnings(rows, settings)
    if warnings:
        take_times_out(rows)
    if interrupted:
        done = sum(map(len, trainings.values()))
        due = len(trainings) * settings.repeats
        warnings.append(f"interrupted: {done} of {due} trainings were done, and stand here")
    try:
        report = write_results(rows, request, command, warnings, used)
    except OSError as cause:
        print(f"demo: --out {request.out}: can't write there ({cause.strerror})", file=sys.stderr)
        return 1
    print_table(rows, settings)
    print(f"report: {report}")
    for warning in warnings:
        print(f"demo: {warning}", file=sys.stderr)
    return 130 if interrupted else _status(rows)


def _check_before_start(request: Request) -> None:
    """Finds what would otherwise spoil the demo only after minutes of training."""
    images = request.settings.workload.load_images(request.data)
    taken = request.settings.ranks * request.settings.batch
    if taken > len(images.train_labels):
        raise _CannotStart(
            f"a step takes {request.settings.ranks} x {request.settings.batch} images, but "
            f"{request.data} "
            f"has {len(images.train_labels):,} to train with; lower --batch or --ranks"
        )
    try:
        request.out.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise _CannotStart(f"--out {request.out}: can't be made ({cause.strerror})") from cause
    if not os.access(request.out, os.W_OK):
        raise _CannotStart(f"--out {request.out}: can't be written to; choose another directory")


def _placed(request: Request) -> Request:
    """With real links where they can be made, unless the user said what to do."""
    settings = request.settings
    if settings.namespaces is not None or settings.bytes_per_second is None:
        return request
    real = can_be_made()
    if not real:
        print(
            "demo: no network namespaces here, which need root and iproute2: the link is a token "
            "bucket in the transport, and plain DDP's time is modelled",
            file=sys.stderr,
        )
    return dataclasses.replace(request, settings=dataclasses.replace(settings, namespaces=real))


def _train(request: Request, trainings: dict[str, list[dict]]) -> None:
    """Appends each training to its method's list as soon as it is done: all rows with the first
    seed, then all with the next, so that a machine whose speed changes treats all rows alike.
    """
    settings = request.settings
    with contextlib.ExitStack() as stack:
        namespaces = None
        if settings.namespaces:
            namespaces = Namespaces(settings.ranks, settings.bytes_per_second)
            stack.enter_context(namespaces)
        workers = stack.enter_context(Workers(settings, namespaces))
        count = len(trainings) * settings.repeats
        progress = Progress(settings.steps, count)
        for seed, method in itertools.product(settings.seeds, request.methods):
            of_seed = f", seed {seed}" if settings.repeats > 1 else ""
            progress.started(label_of(method, settings) + of_seed)
            try:
                repeat = make_repeat(seed, workers.run_row(method, seed, progress.news))
            except RanksFailed as cause:
                repeat = failed_repeat(seed, str(cause))
            trainings[method.name].append(repeat)
            progress.ended(repeat)


def _status(rows: list[dict]) -> int:
    """0, or 1 with a line for each row that failed or whose ranks differ."""
    status = 0
    for row in rows:
        if row["failed"] is not None:
            print(f"demo: {row['method']} failed: {row['failed']}", file=sys.stderr)
            status = 1
        elif not row["bit_equal"]:
            print(f"demo: {row['method']}: the ranks' parameters differ", file=sys.stderr)
            status = 1
    return status
