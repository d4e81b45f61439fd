"""Twins are tested on every GPU that is here, else in Triton's interpreter on the CPU."""

import os

import pytest
import torch
from deltawire.torch.gpu.twins import missing_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
MISSING = missing_triton()
if DEVICE == "cpu" and not MISSING:
    import fast_interpreter

    fast_interpreter.install()


@pytest.fixture
def device():
    """Where the twins run. Tests without it need no Triton."""
    if MISSING:
        pytest.skip(f"Triton: {MISSING}; scripts/check_twins.sh runs this test")
    return torch.device(DEVICE)
