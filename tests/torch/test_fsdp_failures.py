"""What goes wrong in one row of ranks of a sharded model ends the step on all of them, in time;
what can't work is refused alike."""

import os
import signal
import time

import deltawire.torch
import pytest
import torch
from deltawire.torch.fsdp import groups as fsdp_torch
from host_twin import WAYS, HostTwin
from ranks import AT_ONCE, attempted, results, started
from refusals import raised
from sharded import Uneven, cut, loss_of, mesh_of, needs_fsdp2, one_after_another, train_step
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

pytestmark = needs_fsdp2
VICTIM = 3
LONG = 60.0  # a timeout that a test never waits for


@pytest.fixture(scope="module")
def of_four():
    """What a worker returned, by rank, of two nodes with two ranks each."""
    workers = [train_on_nan, pass_nan, cut_short, change, refuse, rename]
    ranks = results(one_after_another, 4, workers)
    return lambda worker: [rank[worker.__name__] for rank in ranks]


def poison(model) -> None:
    """From now on the first row of a weight, which half of the ranks have, gets NaN."""

    def spoil(gradient):
        row = torch.zeros_like(gradient)
        row[:, 0] = float("nan")
        return gradient + row

    model.wide.register_forward_hook(lambda module, x, y: y.register_hook(spoil) and None)


def own_residuals(hook) -> torch.Tensor:
    """Of this rank, as a checkpoint has them."""
    ((residuals,),) = hook.state_dict()["residuals"].values()
    return residuals


def train_on_nan(rank, world_size, report):
    return [trained_on_nan(rank, twins) for twins in WAYS]


def trained_on_nan(rank, twins):
    model = cut(Uneven(), mesh_of(2, 2))
    hook = deltawire.torch.register(model, "3lc", min_elements=8, timeout=LONG, twins=twins)
    train_step(model, rank, 0)
    before = own_residuals(hook)
    if rank == 2:
        poison(model)
    began = time.monotonic()
    caught = raised(deltawire.DeltawireError, train_step, model, rank, 1)
    assert time.monotonic() - began < LONG / 2, "it took a timeout, not an answer"
    assert hook.last_error.code == caught.code
    assert torch.equal(before, own_residuals(hook)), "a step that failed has left a trace"
    hook.close()
    return caught.code, caught.suspect, str(caught)


def test_what_only_one_row_of_ranks_can_see_is_an_error_on_all(of_four):
    for rank, (way, (code, suspect, text)) in by_way(of_four(train_on_nan)):
        assert suspect == 2, f"{way}: a global rank"
        assert "'wide.weight'" in text and "among" not in text
        if rank != 2:
            assert "global rank 2 reports: part 'wide.weight'" in text
        if rank % 2 == 0:
            assert code == "NotFinite" and 'nonfinite="pass"' in text


def by_way(ranks):
    """(rank, (who coded, what came of it)) of all."""
    for rank, values in enumerate(ranks):
        for found in zip(WAYS, values, strict=True):
            yield rank, found


def pass_nan(rank, world_size, report):
    return [passed_nan(rank, twins) for twins in WAYS]


def passed_nan(rank, twins):
    model = cut(Uneven(), mesh_of(2, 2))
    options = {"min_elements": 8, "nonfinite": "pass", "twins": twins}
    hook = deltawire.torch.register(model, "topk:k=20%", **options)
    for step in range(2):
        train_step(model, rank, step)
    before = own_residuals(hook)
    if rank == 2:
        poison(model)
    model.zero_grad()
    loss_of(model, rank, 2).backward()
    rows = model.wide.weight.grad.to_local()
    finite = [record["finite"] for record in hook.step_records]
    unchanged = torch.equal(before, own_residuals(hook))
    steps = hook.metrics()["nonfinite_steps"]
    hook.close()
    return finite, unchanged, bool(torch.isnan(rows).any()), steps


def test_a_step_that_is_not_finite_in_some_rows_leaves_no_trace_in_any(of_four):
    for rank, (way, (finite, unchanged, has_nan, steps)) in by_way(of_four(pass_nan)):
        assert finite == [True, True, False] and steps == 1, way
        assert unchanged, f"{way}: the residual of a step that will be skipped"
        assert has_nan == (rank % 2 == 0)


def cut_short(rank, world_size, report):
    """A user's exception on all ranks, between the gradients of two groups."""
    model = cut(Uneven(), mesh_of(2, 2))
    hook = deltawire.torch.register(model, "3lc", min_elements=8, timeout=LONG)
    train_step(model, rank, 0)
    before = own_residuals(hook)

    def fail(_gradient):
        raise ZeroDivisionError("a bug")

    handle = model.wide.register_forward_hook(lambda module, x, y: y.register_hook(fail) and None)
    with pytest.raises(ZeroDivisionError):
        train_step(model, rank, 1)
    handle.remove()
    model.reset_iter_state()
    torch.distributed.barrier()
    if rank < 2:  # the others find it out in their next pass
        assert hook.state_dict()["steps"] == 1
    torch.distributed.barrier()
    with pytest.raises(deltawire.DeltawireError, match="middle of step 1.*register a new model"):
        train_step(model, rank, 1)
    assert hook.state_dict()["steps"] == 1
    kept = torch.equal(before, own_residuals(hook))
    state = hook.state_dict()
    hook.close()
    return kept, go_on_with(state, model, rank)


def go_on_with(state, model, rank):
    """The model is registered again, and cut short again: to go on would lose what was sent."""
    model.reset_iter_state()
    hook = deltawire.torch.register(model, "3lc", min_elements=8, timeout=LONG)
    hook.load_state_dict(state)
    train_step(model, rank, 1)
    handle = model.wide.register_forward_hook(
        lambda module, x, y: y.register_hook(lambda gradient: 1 / 0) and None
    )
    with pytest.raises(ZeroDivisionError):
        train_step(model, rank, 2)
    handle.remove()
    model.reset_iter_state()
    caught = raised(deltawire.DeltawireError, loss_of, model, rank, 2, match="middle of step 2")
    assert caught.code in ("State", "Aborted")  # whoever finds it first tells the others
    steps = hook.state_dict()["steps"]
    hook.close()
    return steps


def test_a_backward_pass_that_is_cut_short_leaves_the_steps_before_it(of_four):
    assert of_four(cut_short) == [(True, 2)] * 4


def kill(model, rank):
    os.kill(os.getpid(), signal.SIGKILL)


def raise_in_backward(model, rank):
    def fail(_gradient):
        raise ZeroDivisionError("a bug of the backward pass")

    model.odd.register_forward_hook(lambda module, x, y: y.register_hook(fail) and None)
    train_step(model, rank, 0)


def train_until_it_fails(rank, world_size, report, fault):
    model = cut(Uneven(), mesh_of(2, 2))
    deltawire.torch.register(model, "3lc", timeout=LONG)
    for step in range(100_000):
        if step == 2:
            report("training")
            if rank == VICTIM:
                fault(model, rank)
        train_step(model, rank, step)


@pytest.mark.parametrize("fault", [kill, raise_in_backward])
def test_a_rank_that_leaves_ends_all_others_at_once(fault):
    with started(train_until_it_fails, 4, fault) as ranks:
        assert ranks.hear(VICTIM) == "training"  # the others may hear of its end first
        others = ranks.outcomes([0, 1, 2], timeout=AT_ONCE)
    for rank, outcome in others.items():
        assert outcome.raised is not None, f"rank {rank} trained on"


def foreign_hook(mesh):
    model = cut(Uneven(), mesh)
    model.odd.set_all_reduce_hook(lambda gradient: None)
    return model


def registered(mesh):
    model = cut(Uneven(), mesh)
    model.kept = deltawire.torch.register(model, "fp32")
    return model


def two_meshes(mesh):
    model = Uneven()
    fully_shard(model.wide, mesh=mesh)
    return fully_shard(model, mesh=mesh_of(4, 1))


def root_as_it_was(mesh):
    model = Uneven()
    for child in (model.wide, model.one):
        fully_shard(child, mesh=mesh)
    return model


def tensor_parallel(mesh):
    cube = torch.distributed.device_mesh.init_device_mesh(
        "cpu", (2, 1, 2), mesh_dim_names=("replicate", "shard", "tensor")
    )
    model = torch.nn.Linear(4, 4)
    spread = torch.distributed.tensor.distribute_tensor(model.weight.detach(), cube["tensor"])
    model.weight = torch.nn.Parameter(spread)
    return fully_shard(model, mesh=cube["replicate", "shard"])


def frozen_of_other_dtypes(mesh):
    """One that could be trained later, and one that could not."""
    model = Uneven()
    for layer, dtype in ((model.wide, torch.float16), (model.odd, torch.complex64)):
        layer.bias = torch.nn.Parameter(layer.bias.detach().to(dtype), requires_grad=False)
    return cut(model, mesh)


class Float32Twin:
    """Of gcomp, as far as registration looks."""

    def __init__(self, spec):
        pass

    def takes(self, dtype):
        return dtype == torch.float32


DOUBLE = MixedPrecisionPolicy(reduce_dtype=torch.float64)


def others(_, lr):
    """Another model's optimizer."""
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr=lr)


REFUSED = {
    "one dimension": (lambda mesh: fully_shard(Uneven(), mesh=mesh["shard"]), {}, "ValueError",
                      'mesh_dim_names=("replicate", "shard")'),
    "two meshes": (two_meshes, {}, "ValueError", "are on different meshes"),
    "uncut root": (root_as_it_was, {}, "ValueError", "has not cut parameters 'factor', 'odd.weight'"
                   ", 'odd.bias', whose gradients would stay each rank's own; call fully_shard("),
    "tensor parallel": (tensor_parallel, {}, "TypeError", "leave tensor parallelism out"),
    "foreign hook": (foreign_hook, {}, "ValueError", "module 'odd' has an all-reduce hook already"),
    "registered": (registered, {}, "ValueError", "is registered already; close its hook"),
    "float64": (lambda mesh: cut(Uneven(), mesh, mp_policy=DOUBLE), {},
                "TypeError", "reduce_dtype=torch.float32"),
    "optimizer": (lambda mesh: cut(Uneven(), mesh), {"optimizer": others, "spec": "gcomp"},
                  "ValueError", "optimizer=SGD holds none of the model's parameters"),
    "useless optimizer": (lambda mesh: cut(Uneven(), mesh), {"optimizer": torch.optim.SGD},
                          "ValueError", "optimizer= has no effect with 'fp32'"),
    "late": (lambda mesh: cut(Uneven(), mesh),
             {"spec": "topk", "optimizer": torch.optim.Adagrad},
             "ValueError", "not for Adagrad; leave optimizer= out"),
    "late, another model's": (lambda mesh: cut(Uneven(), mesh),
                              {"spec": "topk", "optimizer": others},
                              "ValueError", "optimizer=SGD holds none of the model's parameters"),
    "momentum": (lambda mesh: cut(Uneven(), mesh), {"momentum": "none"}, "ValueError",
                 "momentum='none' is neither"),
    "spec": (lambda mesh: cut(Uneven(), mesh), {"spec": "nothing"}, "ValueError", "nothing"),
    "twins on the CPU": (lambda mesh: cut(Uneven(), mesh), {"twins": True}, "ValueError",
                         "twins are for CUDA devices, and the tensors are on cpu"),
    "twins of no pattern": (lambda mesh: cut(Uneven(), mesh),
                            {"twins": HostTwin, "spec": "powersgd:rank=2"}, "ValueError",
                            "the pattern powersgd:rank=2 has no way for twins"),
    "twins that fold": (lambda mesh: cut(Uneven(), mesh), {"twins": HostTwin, "revert": "fold"},
                        "ValueError", "revert='fold' is for the CPU"),
    "twins of other dtypes": (frozen_of_other_dtypes, {"twins": Float32Twin}, "ValueError",
                              "the twin of fp32 takes no tensors of torch.float16"),
}  # fmt: skip


def refuse(rank, world_size, report):
    mesh = mesh_of(2, 2)
    seen = {}
    for case, (make, options, kind, _) in REFUSED.items():
        model = make(mesh)
        if "optimizer" in options:
            options = {**options, "optimizer": options["optimizer"](model.parameters(), lr=0.1)}
        caught = attempted(
            lambda m=model, o=options: deltawire.torch.register(m, **{"spec": "fp32"} | o)
        )
        builtin = {"ValueError": ValueError, "TypeError": TypeError}[kind]
        seen[case] = (*caught[:2], issubclass(getattr(deltawire, caught[0]), builtin))
    model = cut(Uneven(), mesh)
    spec = "bf16" if rank == VICTIM else "fp32"
    seen["other spec"] = attempted(lambda: deltawire.torch.register(model, spec))
    timeout = -1.0 if rank == VICTIM else LONG
    seen["bad timeout"] = attempted(
        lambda: deltawire.torch.register(model, "fp32", timeout=timeout)
    )
    twins = WAYS[-1] if rank == VICTIM else False
    seen["other coder"] = attempted(lambda: deltawire.torch.register(model, "fp32", twins=twins))
    hook = deltawire.torch.register(model, "fp32")  # nothing is left over of all that
    train_step(model, rank, 0)
    model.leave_out = "factor"
    caught = raised(deltawire.DeltawireError, train_step, model, rank, 1)
    seen["reached in part"] = (caught.code, str(caught))
    hook.close()
    model = cut(Uneven(), mesh)
    hook = deltawire.torch.register(model, "fp32")
    model.set_requires_all_reduce(False)
    loss_of(model, rank, 0).backward()
    model.leave_out = "factor"
    with pytest.raises(deltawire.DeltawireError) as caught:
        loss_of(model, rank, 0).backward()
    seen["kept in part"] = (caught.value.code, str(caught.value))
    hook.close()
    return seen


def change(rank, world_size, report):
    """A layer comes into a registered model, which fully_shard has not cut."""
    model = cut(Uneven(), mesh_of(2, 2))
    hook = deltawire.torch.register(model, "fp32", timeout=LONG)
    train_step(model, rank, 0)
    model.one = torch.nn.Linear(5, 1)
    with torch.no_grad():
        loss_of(model, rank, 1)  # is nobody's concern
    caught = raised(deltawire.DeltawireError, train_step, model, rank, 1)
    assert hook.last_error is caught
    hook.close()
    model.one.requires_grad_(False)
    loss_of(model, rank, 1)  # a closed hook minds nothing
    return caught.code, str(caught)


def test_a_layer_that_came_after_register_is_named(of_four):
    for code, text in of_four(change):
        assert code in ("State", "Aborted")
        assert "has not cut parameters 'one.weight', 'one.bias': frozen, or not there" in text
        assert "close the hook" in text


def test_what_can_not_work_is_refused_alike_with_advice(of_four):
    ranks = of_four(refuse)
    for rank, seen in enumerate(ranks):
        for case, (_, _, _, says) in REFUSED.items():
            name, text, is_builtin = seen[case]
            assert is_builtin and says in text, f"{case} on rank {rank}: {name}: {text}"
        for case in ("other spec", "bad timeout"):
            assert seen[case] is not None, f"{case}: rank {rank} registered alone"
        for case in ("reached in part", "kept in part"):
            code, text = seen[case]
            assert code in ("State", "Aborted") and "set_reduce_scatter_unused_params(True)" in text
    assert "bf16" in ranks[1]["other spec"][1] and "timeout=-1.0" in ranks[0]["bad timeout"][1]
    assert len(WAYS) == 1 or "has coder=twins" in ranks[1]["other coder"][1]


def rename(rank, world_size, report):
    said, mesh = {}, mesh_of(2, 2)
    for name in (*fsdp_torch.GROUP_MEMBERS, *fsdp_torch.PARAMETER_MEMBERS):
        model = fully_shard(Uneven(), mesh=mesh)
        (inside,) = model._get_fsdp_state()._fsdp_param_groups
        owner = inside if name in fsdp_torch.GROUP_MEMBERS else inside.fsdp_params[0]
        vars(owner)[f"{name}_of_tomorrow"] = vars(owner).pop(name)
        said[name] = attempted(lambda m=model: deltawire.torch.register(m, "fp32"))
    return said


def test_a_torch_that_has_renamed_something_is_refused(of_four):
    for said in of_four(rename):
        for name, (_, text, _) in said.items():
            assert f".{name}, which deltawire needs" in text
