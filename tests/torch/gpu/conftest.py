"""Twins are tested on every GPU that is here, else in Triton's interpreter on the CPU."""

import importlib.util
import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HAS_TRITON = importlib.util.find_spec("triton") is not None

if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    if HAS_TRITON:
        import fast_interpreter

        fast_interpreter.install()


@pytest.fixture
def device():
    """Where the twins run. Tests without it need no Triton."""
    if not HAS_TRITON:
        pytest.skip("triton is not installed: scripts/check_twins.sh runs this test")
    return torch.device(DEVICE)
