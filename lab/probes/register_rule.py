"""What `register(model, spec, optimizer=optimizer)` attaches to the optimizer."""

import torch
from deltawire.policy import spec_of
from deltawire.torch.core.late_rule import LateRule
from deltawire.torch.core.late_tensors import LateTensors
from deltawire.torch.core.momentum_choice import AS_RATE, rule_for

MIN_ELEMENTS = 256


def make_rule(
    spec: str, network: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> LateRule | None:
    """The rule for what arrives late; None if nothing does. Set its `step` before each step."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    tensors = [(name, tuple(p.shape), "float32") for name, p in network.named_parameters()]
    late = LateTensors(spec_of(spec), MIN_ELEMENTS, names, tensors)
    return rule_for(optimizer, AS_RATE, late)
