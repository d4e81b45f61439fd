"""Ranks train one linear model over TCP, from plain Python: deltawire's interface for C by ctypes.

    python train.py 0 127.0.0.1:4000 127.0.0.1:4001 &
    python train.py 1 127.0.0.1:4000 127.0.0.1:4001

Set LIBDELTAWIRE to the shared library's path if the system's loader does not find it. Any language
that can call C can do the same; for Python itself there is the package `deltawire`.
"""

import ctypes as c
import os
import random
import sys

LIBRARY = c.CDLL(os.environ.get("LIBDELTAWIRE", "libdeltawire.so.0.1"))
ABI_VERSION = 1
WEIGHTS, BATCH, STEPS = 260, 16, 200


class Error(c.Structure):
    """struct deltawire_error."""

    _fields_ = [
        ("code", c.c_int32),
        ("suspect", c.c_int32),
        ("last_committed_step", c.c_uint64),
        ("message", c.c_char * 1008),
    ]


class Tensor(c.Structure):
    """struct deltawire_tensor."""

    _fields_ = [
        ("name", c.c_char_p),
        ("values", c.c_void_p),
        ("count", c.c_uint64),
        ("dtype", c.c_int32),
        ("dim_count", c.c_uint32),
        ("dims", c.c_void_p),
        ("significance", c.c_void_p),
        ("reserved", c.c_uint64 * 3),
    ]


class Options(c.Structure):
    """struct deltawire_session_options."""

    _fields_ = [
        ("abi_version", c.c_uint32),
        ("rank", c.c_int32),
        ("world_size", c.c_int32),
        ("epoch", c.c_uint32),
        ("endpoints", c.POINTER(c.c_char_p)),
        ("token", c.c_char_p),
        ("settings", c.c_char_p),
        ("connect_timeout_ms", c.c_int64),
        ("arrival_timeout_ms", c.c_int64),
        ("min_elements", c.c_uint64),
        ("seed", c.c_uint64),
        ("threads", c.c_int32),
        ("fold_revert", c.c_int32),
        ("pass_not_finite", c.c_int32),
        ("reserved_flag", c.c_int32),
        ("reserved", c.c_uint64 * 8),
    ]


class Step(c.Structure):
    """struct deltawire_step."""

    _fields_ = [
        ("number", c.c_uint64),
        ("bucket", c.c_uint32),
        ("last", c.c_int32),
        ("scale", c.c_float),
        ("reserved", c.c_uint32),
    ]


class Report(c.Structure):
    """struct deltawire_report."""

    _fields_ = [
        ("seconds", c.c_double * 3),
        ("bytes_sent", c.c_uint64),
        ("raw_bytes", c.c_uint64),
        ("element_count", c.c_uint64),
        ("digest", c.c_uint64),
        ("last_committed_step", c.c_uint64),
        ("finite", c.c_int32),
        ("reserved_flag", c.c_int32),
        ("reserved", c.c_uint64 * 4),
    ]


def call(name, *arguments):
    """Calls a function of the library; raises RuntimeError with its message if it fails."""
    error = Error()
    if getattr(LIBRARY, f"deltawire_{name}")(*arguments, c.byref(error)) != 0:
        raise RuntimeError(error.message.decode())


def open_session(rank, endpoints):
    """This rank's place among those at `endpoints`."""
    options = Options()
    call("session_options_init", c.byref(options), c.c_uint32(ABI_VERSION))
    options.rank, options.world_size = rank, len(endpoints)
    options.endpoints = (c.c_char_p * len(endpoints))(*map(str.encode, endpoints))
    options.token = b"replace this by 32 secret bytes."
    session = c.c_void_p()
    call("session_open", b"3lc", c.byref(options), None, c.byref(session))
    return session


def differentiate(w, numbers, gradient):
    """Fills in the gradient of one batch's loss, and returns that loss."""
    total = [0.0] * WEIGHTS
    loss = 0.0
    for _ in range(BATCH):
        x = [numbers.gauss(0, 1) for _ in range(WEIGHTS)]
        # The error of w x; the weights to be learned are 1, -1, 1, -1 ...
        miss = sum(
            (wi - (1 - 2 * (i % 2))) * xi for i, (wi, xi) in enumerate(zip(w, x, strict=True))
        )
        total = [ti + miss * xi / BATCH for ti, xi in zip(total, x, strict=True)]
        loss += miss * miss / BATCH
    gradient[:] = total
    return loss


def main():
    """Trains, and prints the result."""
    rank, *endpoints = sys.argv[1:]
    session = open_session(int(rank), endpoints)
    numbers = random.Random(int(rank))
    w = [0.0] * WEIGHTS
    gradient = (c.c_float * WEIGHTS)()
    tensor = Tensor(name=b"w", values=c.addressof(gradient), count=WEIGHTS, dtype=1)
    report = Report()
    sent = raw = 0
    for number in range(STEPS):
        loss = differentiate(w, numbers, gradient)
        step = Step(number=number, last=1, scale=1.0)
        call(
            *("session_all_reduce", session, c.byref(tensor), c.c_uint32(1), c.byref(step)),
            *(c.c_int64(20000), c.byref(report)),
        )
        w = [wi - 0.05 * gi for wi, gi in zip(w, gradient, strict=True)]
        sent += report.bytes_sent
        raw += report.raw_bytes
    LIBRARY.deltawire_session_close(session)
    print(f"w[0] = {w[0]:.9g}, loss {loss:.3g}, {raw / sent:.1f} times fewer bytes than float32")


if __name__ == "__main__":
    main()
