"""What DDP can't do it refuses in words: to go on without a rank, to delay an exchange."""

import deltawire.torch
import pytest
import torch


def test_ddp_is_not_elastic():
    with pytest.raises(
        deltawire.InvalidArgumentError, match="process group .* fixed number"
    ) as caught:
        deltawire.torch.register(torch.nn.Linear(2, 2), "3lc", elastic=True)
    assert "max-restarts" in str(caught.value)


def test_a_step_is_not_delayed():
    model = torch.nn.Linear(2, 2)
    with pytest.raises(deltawire.InvalidArgumentError, match="delay=1: .* was taken out") as caught:
        deltawire.torch.register(model, "3lc", delay=1)
    assert "LocalSteps(delay=1)" in str(caught.value)
