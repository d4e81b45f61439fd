"""Sharded models whose gradients a device, played on the host, encodes and decodes, next to the
CPU's way."""

import dataclasses

import deltawire.torch
import torch
from deltawire.torch.core.checkpoint import kept_of
from deltawire.torch.core.device.choice import Choice
from host_twin import WAYS, HostTwin
from sharded import Uneven, cut, descend, fingerprint, gradients, loss_of, mesh_of, train_step
from torch.distributed.fsdp import MixedPrecisionPolicy

STEPS = 2
CASES = [
    ("3lc:s=1.75", None, {}),
    ("gather(topk:k=20%)", torch.bfloat16, {}),
    ("ring(gcomp)", None, {"optimizer": True}),
    ("direct(sbc:p=20%)", torch.float16, {}),
    ("int8", torch.bfloat16, {"nonfinite": "pass"}),
]
OF_RANKS = {4: CASES[:3], 2: CASES[2:]}  # gcomp's significance is cut as rows are


def train_on_twins(rank, world_size, report):
    """Of each case what training leaves, by the CPU and then, from its state, on twins; and the
    other way round."""
    mesh = mesh_of(2, world_size // 2)
    return {
        spec: [trained(mesh, rank, spec, reduce, options, ways) for ways in (WAYS, WAYS[::-1])]
        for spec, reduce, options in OF_RANKS[world_size]
    }


def trained(mesh, rank, spec, reduce, options, ways):
    """What is left after the steps of each way: what must be the same whoever codes, and whether
    twins had to code something."""
    model = cut(Uneven(), mesh, mp_policy=MixedPrecisionPolicy(None, reduce))
    adam = torch.optim.Adam(model.parameters(), lr=1e-4)
    options = {name: adam if name == "optimizer" else value for name, value in options.items()}
    state, found = None, []
    for first, twins in zip((0, STEPS), ways, strict=True):
        encodings = HostTwin.encodings
        hook = deltawire.torch.register(model, spec, min_elements=0, twins=twins, **options)
        if state is not None:
            hook.load_state_dict(state)
        for step in range(first, first + STEPS):
            train_step(model, rank, step)
            adam.step()  # its moments are what gcomp cuts by
        loss_of(model, rank, first).backward()  # adds to gradients: torch looks at them at once
        state = hook.state_dict()
        found.append((facts_of(hook, model, rank, state), HostTwin.encodings > encodings))
        descend(model)
        check_closed(hook, model)
    return found


def facts_of(hook, model, rank, state):
    means = [each.float().numpy().tobytes() for each in gradients(model)]
    records = [(each["bytes_sent"], each["raw_bytes"]) for each in hook.step_records]
    rows = [(row.bytes_sent, row.residual_norm) for row in hook.explain().rows]
    residuals = kept_of(state, rank, "residuals").numpy().tobytes()
    return {
        "weights": fingerprint(model),
        "means": means,
        "bytes": records,
        "rows": rows,
        "state": (residuals, state["steps"], state["ranges"]),
    }


def check_closed(hook, model):
    """A hook says who coded gradients. Its device keeps none of them, and no significance."""
    elsewhere = Choice(None, "cuda:1")
    rules = hook._rules
    hook._rules = dataclasses.replace(rules, choice=elsewhere)
    assert hook.explain().coded_on == "cuda:1"
    hook.close()
    if rules.choice.parts is not None:
        assert rules.choice.parts._rank == hook.rank  # as errors of the session count ranks
        held = [p.grad for p in model.parameters() if p.grad is not None]
        held = {each.to_local().untyped_storage().data_ptr() for each in held}
        if rules.uses.source is not None:
            memories = rules.uses.source._buffers.values()
            lent = [each.untyped_storage().data_ptr() for each in memories]
            assert lent
            held.update(lent)
        assert not held & set(rules.choice.parts._regions)
