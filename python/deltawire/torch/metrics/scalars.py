"""A rank's metrics as plain numbers: a flat dict, rows of buckets, a line of text."""

import contextlib
import math
from collections.abc import Iterator, Sequence

import torch

from deltawire.session.history import BucketRecord
from deltawire.torch.metrics.explanation import TensorRow

_PREFIX = "deltawire"
_NO_QUANTITIES = ("digest", "fragment")


def norm_of(rows: Sequence[TensorRow]) -> float:
    """The L2 norm of the residuals of all rows."""
    return math.hypot(*(row.residual_norm for row in rows))


def bucket_rows(buckets: Sequence[BucketRecord], rows: Sequence[TensorRow]) -> list[dict]:
    """See `Participant.buckets`."""
    by_name = {row.name: row for row in rows}
    found = []
    for index, bucket in enumerate(buckets):
        report = bucket.report
        sent = report.bytes_sent
        found.append(
            {
                "bucket": index,
                "tensors": bucket.names,
                "elements": report.element_count,
                "encode_ms": 1e3 * report.encode_seconds,
                "exchange_ms": 1e3 * report.exchange_seconds,
                "decode_ms": 1e3 * report.decode_seconds,
                "in_flight_ms": 1e-6 * (bucket.over_ns - bucket.ready_ns),
                "bytes_sent": sent,
                "raw_bytes": report.raw_bytes,
                "ratio": report.raw_bytes / sent if sent else None,
                "residual_norm": norm_of([by_name[n] for n in bucket.names if n in by_name]),
            }
        )
    return found


def scalars(metrics: dict, rows: Sequence[TensorRow], buckets: Sequence[dict]) -> dict[str, float]:
    """See `Participant.scalars`."""
    flat = dict(_numbers(_PREFIX, metrics))
    flat[f"{_PREFIX}/residual_norm"] = norm_of(rows)
    for bucket in buckets:
        flat |= _numbers(f"{_PREFIX}/bucket_{bucket['bucket']}", bucket, leave_out=("bucket",))
    return flat


def summary(steps: int, records: Sequence[dict], rows: Sequence[TensorRow]) -> str:
    """One line of means over these records, the last ones of `steps` steps."""
    mean = {
        key: sum(record[key] for record in records) / len(records)
        for key in ("bytes_sent", "raw_bytes", "encode_ms", "exchange_ms", "decode_ms")
    }
    sent = mean["bytes_sent"]
    times = f"{mean['raw_bytes'] / sent:.1f} times smaller" if sent else "nothing sent"
    phases = ", ".join(
        f"{key} {mean[key + '_ms']:.1f} ms" for key in ("encode", "exchange", "decode")
    )
    return (
        f"step {steps:,}: {times}, {sent / 1e6:.3f} MB sent of {mean['raw_bytes'] / 1e6:.3f} MB; "
        f"{phases}; residual norm {norm_of(rows):.4g} (means of {len(records)} steps)"
    )


@contextlib.contextmanager
def profiled(name: str, until: torch.futures.Future | None = None) -> Iterator[None]:
    """A range in torch's profiler, if that is running: of the block, or until the Future completes,
    on whichever thread."""
    if not torch.autograd.profiler._is_profiler_enabled:
        yield
        return
    with torch.profiler.record_function(name) as span:
        yield
        if until is not None:
            span._call_end_callbacks_on_future(until)


def _numbers(prefix: str, values: dict, leave_out=()) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and key not in (*_NO_QUANTITIES, *leave_out):
            yield f"{prefix}/{key}", float(value)
