"""The fork server imports this last (conftest.py).

What it has imported by then is no garbage. Frozen, it is not looked through by each process that
the server forks: a collection takes 0.2 s and copies 80 MB of pages that are shared otherwise.

The ranks of a test share the machine's processors, with other tests, too: each computes in one
thread, as under torchrun. OMP_NUM_THREADS would come too late: torch has read it by then.
"""

import contextlib
import gc

gc.collect()
gc.freeze()

with contextlib.suppress(ImportError):
    import torch

    torch.set_num_threads(1)
