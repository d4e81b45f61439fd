"""The fork server imports this last (conftest.py).

It forks processes for all tests, since it has no other threads. A fork of pytest's process inherits
the locks that its threads hold, and they are never released: a session's thread, for one, takes
OpenSSL's as it ends, when Thread.join() has already returned.

What it has imported by then is no garbage. Frozen, it is not looked through by each process that
the server forks: a collection takes 0.2 s and copies 80 MB of pages that are shared otherwise.

The ranks of a test share the machine's processors, with other tests, too: each computes in one
thread, as under torchrun. OMP_NUM_THREADS would come too late: torch has read it by then.
"""

import contextlib
import ctypes
import gc
from pathlib import Path

_HUGE = 2 << 20  # bytes of a huge page
_COLLAPSE = 25  # MADV_COLLAPSE, of Linux 6.1


def settle() -> None:
    """Makes forks of this process cheap: a fork and its end take 8 ms of processor time, and 24 ms
    with 270 MB in small pages, each of which has an entry to copy. Older kernels refuse that."""
    gc.collect()
    gc.freeze()
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, _, _, _, *name = line.split(maxsplit=5)
        if access.startswith("rw") and name in ([], ["[heap]"]):
            low, high = (int(end, 16) for end in span.split("-"))
            for page in range(-(-low // _HUGE) * _HUGE, high - _HUGE + 1, _HUGE):
                advise(page, _HUGE, _COLLAPSE)


with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)

settle()
