"""What a sharded model's optimizer can see, against what whole parameters with whole moments would
say."""

import ctypes
import math

import deltawire.torch
import numpy as np
import torch
from sharded import Uneven, batch, cut, mesh_of
from torch.distributed.fsdp import MixedPrecisionPolicy


def cut_what_the_optimizer_cant_see(rank, world_size, report):
    """With Adam, whose moments are cut as the parameters are: what is handed on is what whole
    parameters with whole moments would have; and it saves bytes."""
    sent, equal = {}, []
    for reduce in (None, torch.bfloat16):
        for known in (False, True):
            model = cut(Uneven(256), mesh_of(2, 2), mp_policy=MixedPrecisionPolicy(None, reduce))
            adam = torch.optim.Adam(model.parameters(), lr=1e-4)
            given = {"optimizer": adam} if known else {}
            hook = deltawire.torch.register(model, "direct(gcomp)", min_elements=0, **given)
            seen = significance_submitted(hook)
            for step in range(3):
                whole = whole_significance(model, adam)
                seen.clear()
                adam.zero_grad()
                model(batch(rank, step, 256)).square().mean().backward()
                rows = hook.state_dict()["ranges"][f"rank {rank}"][0]
                for name, values in seen.items():
                    _, first, end = rows[name]
                    equal.append(np.array_equal(values, whole[name][first:end].flatten()))
                    equal.append(step == 0 or values.any())
                adam.step()
            assert len(seen) == (6 - (rank % 2) * 2 if known else 0)
            sent[reduce, known] = hook.metrics()["total_bytes_sent"]
            hook.close()
    return sent[None, True] / sent[None, False], sent[torch.bfloat16, True], all(equal)


def significance_submitted(hook) -> dict:
    """By name, of what the hook hands to its session from now on."""
    seen, session = {}, hook._session

    class Recorder:
        def __getattr__(self, name):
            return getattr(session, name)

        def submit(self, tensors, *rest):
            for name, _, _, shape, *more in tensors:
                if len(more) == 2 and more[1]:
                    memory = (ctypes.c_float * math.prod(shape)).from_address(more[1])
                    seen[name] = np.array(memory, dtype=np.float32)
            session.submit(tensors, *rest)

    hook._session = Recorder()
    return seen


def whole_significance(model, adam) -> dict:
    """By name, computed from whole parameters and moments: a collective."""
    found = {}
    for name, parameter in model.named_parameters():
        whole = torch.nn.Parameter(parameter.detach().full_tensor())
        twin = torch.optim.Adam([whole], lr=adam.param_groups[0]["lr"])
        for key, value in adam.state.get(parameter, {}).items():
            value = value.full_tensor() if hasattr(value, "full_tensor") else value
            twin.state[whole][key] = value.clone()
        found[name] = deltawire.torch.significance_of(twin, whole).numpy()
    return found
