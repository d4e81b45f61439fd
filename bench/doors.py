"""What a door costs beside its kernel: calls that return or take bytes, from Python and C.

usage: python bench/doors.py [--values N,...] [--calls N] [SPEC...]

Prints a Markdown table for each number of values: milliseconds of a call (the median, on the wall,
and as a multiple of the kernel's), processor milliseconds (user and system) and page faults. The
kernel is `deltawire_codec_encode` or `_decode` in memory that is kept; the calls of a codec take
turns, so that all meet the same machine. Results are compared before they are measured. Needs
deltawire and, for the C interface, libdeltawire.so next to it (build/release).
"""

import argparse
import ctypes
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import deltawire
import numpy as np
from deltawire import patches

SPECS = ("fp32", "bf16", "gcomp:cut=0", "gcomp:cut=6", "int8", "3lc", "sbc:p=1%")
PAGE = resource.getpagesize()
FLOAT32 = 1  # DELTAWIRE_F32


class Tensor(ctypes.Structure):
    """deltawire_tensor."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("values", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
        ("dim_count", ctypes.c_uint32),
        ("dims", ctypes.c_void_p),
        ("significance", ctypes.c_void_p),
        ("reserved", ctypes.c_uint64 * 3),
    )


class Part(ctypes.Structure):
    """deltawire_part."""

    _fields_ = (
        ("payload", ctypes.c_void_p),
        ("payload_bytes", ctypes.c_uint64),
        ("chunk_ends", ctypes.c_void_p),
        ("chunks", ctypes.c_uint32),
        ("scalar", ctypes.c_uint32),
        ("scalar2", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class Kernel:
    """A codec by the C interface, with memory that is kept."""

    def __init__(self, library: ctypes.CDLL, spec: str, values: np.ndarray, keeps: bool) -> None:
        self._library = library
        self._codec = ctypes.c_void_p()
        self._call("open", spec.encode(), ctypes.byref(self._codec))
        self._in = Tensor(b"w", values.ctypes.data, values.size, FLOAT32)
        room, chunks = ctypes.c_uint64(), ctypes.c_uint32()
        self._call(
            "bounds", self._codec, ctypes.byref(self._in), ctypes.byref(room), ctypes.byref(chunks)
        )
        self._payload = np.zeros(room.value, np.uint8)
        self._ends = np.zeros(chunks.value, np.uint32)
        self._residual = np.zeros(values.size, np.float32) if keeps else None
        self.out = np.zeros_like(values)
        self._out = Tensor(b"w", self.out.ctypes.data, values.size, FLOAT32)

    def _call(self, name: str, *given) -> None:
        if getattr(self._library, f"deltawire_codec_{name}")(*given, None):
            raise RuntimeError(f"deltawire_codec_{name} failed")

    def encode(self) -> None:
        self._part = Part(
            self._payload.ctypes.data, self._payload.size, self._ends.ctypes.data, self._ends.size
        )
        residual = None if self._residual is None else self._residual.ctypes.data
        self._call(
            "encode",
            self._codec,
            ctypes.byref(self._in),
            ctypes.c_void_p(residual),
            ctypes.c_uint64(0),
            ctypes.byref(self._part),
        )

    def decode(self) -> None:
        self._call(
            "decode",
            self._codec,
            ctypes.byref(self._part),
            ctypes.byref(self._out),
            ctypes.c_int32(0),
            ctypes.c_float(1),
        )


class Row(NamedTuple):
    """What one call took."""

    wall: float
    processor: float
    faults: float


def measured(call: Callable[[], Any]) -> Row:
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    result = call()
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    del result
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Row(1e3 * wall, 1e3 * used, after.ru_minflt - before.ru_minflt)


def print_rows(what: str, calls: dict[str, tuple[Callable[[], Any], str]], repeats: int) -> None:
    """A line for each call; its kernel is a call of another name, whose own line is first."""
    rows: dict[str, list[Row]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, (call, _) in calls.items():
            row = measured(call)
            if turn > 0:  # the first makes memory that is kept
                rows[name].append(row)
    median = {
        name: Row(*(statistics.median(column) for column in zip(*each, strict=True)))
        for name, each in rows.items()
    }
    for name, (_, kernel) in calls.items():
        row, base = median[name], median[kernel]
        wall, processor = row.wall / base.wall, row.processor / max(base.processor, 1e-3)
        print(
            f"| {what} | {name} | {row.wall:.2f} ({wall:.2f}) | {row.processor:.1f} "
            f"({processor:.2f}) | {row.faults:.0f} |",
            flush=True,
        )


def codec_rows(library: ctypes.CDLL | None, spec: str, values: np.ndarray, repeats: int) -> None:
    channel, free = deltawire.Channel(spec), deltawire.Channel(spec, error_feedback=False)
    arrays, out = {"w": values}, np.zeros_like(values)
    channel.encode(arrays)
    keeps = channel.residual("w").size > 0
    message, file = free.encode(arrays), deltawire.encode(values, spec)
    free.decode(message, {"w": out}, accumulate=False)
    if values.size < 1 << 23:  # longer files have several parts, each with its own scale
        assert np.array_equal(deltawire.decode(file), out)
    encoding: dict[str, tuple[Callable[[], Any], str]] = {}
    decoding: dict[str, tuple[Callable[[], Any], str]] = {}
    first, last = "Channel.encode", "Channel.decode"
    if library is not None:
        kernel = Kernel(library, spec, values, keeps)
        encoding["kernel"], decoding["kernel"] = (kernel.encode, ""), (kernel.decode, "")
        first = last = "kernel"
    encoding["Channel.encode"] = (lambda: channel.encode(arrays), "")
    if hasattr(channel, "message_bound"):
        room = bytearray(channel.message_bound(arrays))
        encoding["Channel.encode(out=)"] = (lambda: channel.encode(arrays, out=room), "")
    encoding["encode"] = (lambda: deltawire.encode(values, spec), "")
    decoding["Channel.decode"] = (lambda: free.decode(message, {"w": out}, accumulate=False), "")
    decoding["decode"] = (lambda: deltawire.decode(file), "")
    for calls, base in ((encoding, first), (decoding, last)):
        print_rows(spec, {name: (call, base) for name, (call, _) in calls.items()}, repeats)
    pages = {"message": len(message) / PAGE, "array": values.nbytes / PAGE}
    print(
        f"| {spec} | pages of "
        + ", ".join(f"the {k}: {v:.0f}" for k, v in pages.items())
        + " |  |  |  |"
    )


def patch_rows(count: int, repeats: int) -> None:
    random = np.random.default_rng(2)
    old = random.integers(0, 1 << 15, count).astype(np.int16)
    new = old.copy()
    new[random.integers(0, count, count // 100)] ^= 1
    patch = patches.make(old, new)
    made = np.empty_like(old)
    patches.apply(patch, old, made)
    assert np.array_equal(made, new)
    calls = {
        "verify": (lambda: patches.verify(patch, old), "verify"),
        "patches.make": (lambda: patches.make(old, new), "verify"),
        "patches.apply(out)": (lambda: patches.apply(patch, old, made), "verify"),
    }
    print_rows("1 % of 16-bit weights", calls, repeats)


def library_beside() -> ctypes.CDLL | None:
    for folder in Path(deltawire.__file__).parents:
        found = folder / "lib" / "libdeltawire.so"
        if found.exists():
            return ctypes.CDLL(os.fspath(found))
    return None


def cpu_name() -> str:
    fields = dict(
        line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line
    )
    named = {key.strip(): value.strip() for key, value in fields.items()}
    return f"{named['model name']}, family {named['cpu family']}, model {named['model']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", default=SPECS)
    parser.add_argument("--values", default="1000000,25000000")
    parser.add_argument("--calls", type=int, default=7)
    given = parser.parse_args()
    print(f"{cpu_name()}; medians of {given.calls} calls")
    for count in map(int, given.values.split(",")):
        values = np.random.default_rng(1).standard_normal(count).astype(np.float32)
        values *= np.float32(1e-3)
        print(
            f"\n{count:,} values\n\n| | call | ms (x kernel) | processor ms (x kernel) | faults |"
        )
        print("|---|---|---|---|---|")
        for spec in given.specs:
            codec_rows(library_beside(), spec, values, given.calls)
        patch_rows(count, given.calls)


if __name__ == "__main__":
    main()
