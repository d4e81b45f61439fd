"""Ways in which a sharded model gets its gradients: each is a function (model, rank, step), with
options of fully_shard."""

import torch
from sharded import gradients, loss_of
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.checkpoint import checkpoint


def plainly(model, rank, step):
    loss_of(model, rank, step).backward()


def accumulate_without_communication(model, rank, step):
    model.set_requires_gradient_sync(False)
    loss_of(model, rank, step).backward()
    model.set_requires_gradient_sync(True)
    loss_of(model, rank, step + 50).backward()


def accumulate_within_nodes(model, rank, step):
    model.set_requires_all_reduce(False)
    loss_of(model, rank, step).backward()
    loss_of(model, rank, step + 30).backward()
    model.set_requires_all_reduce(True)
    loss_of(model, rank, step + 50).backward()


def accumulate_what_was_exchanged(model, rank, step):
    loss_of(model, rank, step).backward()
    loss_of(model, rank, step + 50).backward()


def divide_by_eight(model, rank, step):
    for module in (model.wide, model.odd, model):
        module.set_gradient_divide_factor(8.0)
        module.set_force_sum_reduction_for_comms(True)
    loss_of(model, rank, step).backward()


def use_modules_twice(model, rank, step):
    (loss_of(model, rank, step) + model.wide(torch.ones(2, 16) * rank).sum()).backward()


def recompute(model, rank, step):
    """A backward pass within a backward pass."""
    inner = model.odd.forward

    def outer(x):
        return checkpoint(inner, x, use_reentrant=True)

    model.odd.forward = outer
    try:
        loss_of(model, rank, step).backward()
    finally:
        del model.odd.forward


def look_at_gradients_in_backward(model, rank, step):
    seen = []
    hooks = [
        parameter.register_post_accumulate_grad_hook(
            lambda p: seen.append(p.grad.to_local().clone())
        )
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    loss_of(model, rank, step).backward()
    for hook in hooks:
        hook.remove()
    assert len(seen) == len(hooks)
    by_value = [[tuple(g.shape), g.flatten().tolist()] for g in gradients(model)]
    assert sorted(by_value) == sorted([tuple(g.shape), g.flatten().tolist()] for g in seen)


def leave_a_group_out(model, rank, step):
    model.leave_out = "root"
    loss_of(model, rank, step).backward()


def count_unused_as_zero(model, rank, step):
    model.set_reduce_scatter_unused_params(True)
    model.leave_out = "factor" if step % 2 else "root"
    loss_of(model, rank, step).backward()


def scale_up(model, rank, step):
    """As a GradScaler does: no gradient of float16 becomes subnormal."""
    (1024 * loss_of(model, rank, step)).backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.to_local().div_(1024)


def sum_before_dividing(model, rank, step):
    """torch divides after the all-reduce."""
    for module in (model.wide, model.odd, model):
        module.set_force_sum_reduction_for_comms(True)
    loss_of(model, rank, step).backward()


MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
FP16 = MixedPrecisionPolicy(reduce_dtype=torch.float16)
CUT = {  # on two nodes of two ranks
    "plainly": (plainly, {}),
    "accumulate within nodes": (accumulate_within_nodes, {"mp_policy": MIXED}),
    "count unused as zero": (count_unused_as_zero, {}),
    "sum before dividing": (sum_before_dividing, {}),
    "reduce as bfloat16": (plainly, {"mp_policy": BF16}),
    "accumulate as bfloat16": (accumulate_within_nodes, {"mp_policy": BF16}),
    "reduce as float16": (scale_up, {"mp_policy": FP16}),
}
WHOLE = {  # on two nodes of one
    "kept gathered": (plainly, {"reshard_after_forward": False}),
    "accumulate without communication": (accumulate_without_communication, {}),
    "accumulate what was exchanged": (accumulate_what_was_exchanged, {}),
    "divide by eight": (divide_by_eight, {}),
    "use modules twice": (use_modules_twice, {}),
    "recompute": (recompute, {}),
    "leave a group out": (leave_a_group_out, {}),
    "look at gradients in backward": (look_at_gradients_in_backward, {}),
    "whole in bfloat16": (plainly, {"mp_policy": BF16}),
}
