"""DDP can't go on without a rank, and says so."""

import deltawire.torch
import pytest
import torch


def test_ddp_is_not_elastic():
    with pytest.raises(
        deltawire.InvalidArgumentError, match="process group .* fixed number"
    ) as caught:
        deltawire.torch.register(torch.nn.Linear(2, 2), "3lc", elastic=True)
    assert "max-restarts" in str(caught.value)
