"""Models that fully_shard has cut on two dimensions: between nodes gradients go through deltawire,
and with fp32 they are bit for bit torch's own."""

import copy
import itertools
import pickle
import tempfile

import deltawire
import deltawire.torch
import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from backward_passes import CUT, WHOLE
from host_twin import LIBRARY
from ranks import results
from refusals import raised
from sharded import (
    Uneven,
    cut,
    descend,
    fingerprint,
    gradients,
    loss_of,
    mesh_of,
    needs_fsdp2,
    one_after_another,
    train_step,
)
from sharded_significance import cut_what_the_optimizer_cant_see
from sharded_twins import OF_RANKS, train_on_twins
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

pytestmark = needs_fsdp2
STEPS = 2
ON_TWINS = [train_on_twins] if LIBRARY.is_file() else []


def of_ranks(world_size, *workers):
    """What a worker returned, by rank."""
    ranks = results(one_after_another, world_size, [*workers, *ON_TWINS])
    return lambda worker: [rank[worker.__name__] for rank in ranks]


@pytest.fixture(scope="module")
def of_four():
    """Of two nodes with two ranks each."""
    others = train_lossy, flush, cut_what_the_optimizer_cant_see, save_and_load
    return of_ranks(4, compare_with_plain, take_over, *others)


@pytest.fixture(scope="module")
def of_two():
    """Of two nodes with one rank each."""
    others = go_on_after_passes_that_were_cut_short, one_replica
    return of_ranks(2, compare_with_plain, compute_meanwhile, *others)


def compare_with_plain(rank, world_size, report):
    mesh, modes = mesh_of(2, world_size // 2), WHOLE if world_size == 2 else CUT
    seen = {}
    for mode, (backward, options) in modes.items():
        plain, ours = cut(Uneven(), mesh, **options), cut(Uneven(), mesh, **options)
        hook = deltawire.torch.register(ours, "fp32")
        equal = True
        for step in range(STEPS):
            for model in (plain, ours):
                model.zero_grad()
                backward(model, rank, step)
                descend(model)
            pairs = list(zip(gradients(plain), gradients(ours), strict=True))
            assert len(pairs) == (3 if mode == "leave a group out" else 6)
            assert any(theirs.abs().sum() > 0 for theirs, _ in pairs)
            equal &= all(torch.equal(*pair) for pair in pairs)
        ours.zero_grad()
        waited_for = [group.later_steps_look_at() for group in hook._groups]
        prints = fingerprint(ours), fingerprint(plain)
        seen[mode] = equal, hook.last_error, *prints, waited_for, hook.metrics()
        hook.close()
    return seen


@pytest.mark.parametrize("world_size", [4, 2], ids=["cut", "whole"])
def test_fp32_is_bit_for_bit_what_torch_makes_of_it(of_two, of_four, world_size):
    ranks = {2: of_two, 4: of_four}[world_size](compare_with_plain)
    for mode in ranks[0]:
        for rank, seen in enumerate(ranks):
            equal, error, ours, plain, _, metrics = seen[mode]
            assert error is None and equal and ours == plain, f"{mode}: rank {rank} differs"
            assert metrics["total_bytes_sent"] > 0, f"{mode}: nothing went through deltawire"
    if world_size == 2:
        return
    for rank in ranks:
        *_, waited_for, metrics = rank["plainly"]
        assert not any(waited_for), "nothing goes on meanwhile"
        for mode in ("sum before dividing", "reduce as float16", "reduce as bfloat16"):
            assert all(rank[mode][-2]), "torch divides, or converts, what is on its way"
        assert metrics["steps"] == STEPS and metrics["buckets"] == 3 + 1
    # Rank 0 has 17 of 33 rows, 3 of 5, the one of one, and 2 of 3; ranks 1 and 3 have what is left.
    assert ranks[0]["plainly"][-1]["elements"] == 17 * 16 + (3 * 33 + 3) + (5 + 1) + 2
    assert ranks[3]["plainly"][-1]["elements"] == 16 * 16 + (2 * 33 + 2) + 0 + 1


def replicate(module, *, mesh):
    from torch.distributed._composable.replicate_with_fsdp import replicate

    return replicate(module, mesh=mesh["replicate"])


def compare_with_the_stated_sum(rank, world_size, report):
    mesh = mesh_of(world_size, 1)
    gaps = []
    for shard in (fully_shard, replicate):
        alone, module = Uneven(), Uneven()
        ours = cut(module, mesh, shard)
        hook = deltawire.torch.register(ours, "fp32")
        loss_of(alone, rank, 0).backward()
        loss_of(ours, rank, 0).backward()
        scale = np.float32(1) / np.float32(world_size)
        trained = [p for p in alone.parameters() if p.requires_grad]
        for parameter, mean in zip(trained, gradients(ours), strict=True):
            parts = [torch.empty_like(parameter.grad) for _ in range(world_size)]
            dist.all_gather(parts, parameter.grad.contiguous())
            total = np.zeros(parts[0].shape, np.float32)
            for part in parts:
                total = total + scale * part.numpy()
            gaps.append(bool((total == mean.numpy()).all()))
        assert hook.metrics()["steps"] == 1 and hook.world_size == world_size
        hook.close()
    return gaps


def test_models_that_are_whole_on_each_rank_get_the_stated_sum():
    for gaps in results(compare_with_the_stated_sum, 3):
        assert len(gaps) == 12 and all(gaps)


def compute_meanwhile(rank, world_size, report):
    """Rank 1 begins its backward pass when rank 0 is amid its own, behind a first exchange."""
    model = cut(Uneven(), mesh_of(2, 1))
    hook = deltawire.torch.register(model, "fp32", timeout=2, arrival_timeout=2)
    train_step(model, rank, 0)
    model.zero_grad()
    loss, word = loss_of(model, rank, 1), torch.zeros(1)
    if rank == 0:
        model.wide.register_forward_hook(
            lambda module, x, y: y.register_hook(lambda gradient: dist.send(word, 1)) and None
        )
        loss = loss_of(model, rank, 1)
    else:
        dist.recv(word, 0)
    loss.backward()
    steps = hook.metrics()["steps"]
    hook.close()
    return steps


def test_the_backward_pass_goes_on_while_gradients_are_on_their_way(of_two):
    assert of_two(compute_meanwhile) == [2, 2]


def fail(gradient):
    raise ZeroDivisionError("a bug of the training loop, on every rank")


def fail_amid(model, rank, name):
    """A backward pass that ends before the gradients of a layer; nothing is zeroed before."""
    layer = getattr(model, name)
    handle = layer.register_forward_hook(lambda module, x, y: y.register_hook(fail) and None)
    with pytest.raises(ZeroDivisionError):
        loss_of(model, rank, 7).backward()
    handle.remove()


def accumulate(model, rank, setter):
    """A backward pass whose gradients wait for the next one's."""
    getattr(model, setter)(False)
    loss_of(model, rank, 8).backward()
    getattr(model, setter)(True)


ACCUMULATIONS = ("set_requires_all_reduce", "set_requires_gradient_sync")


def go_on_after_passes_that_were_cut_short(rank, world_size, report):
    found = []
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for options in ({}, {"mp_policy": half}):
        prints = []
        for fails in (False, True):
            model = cut(Uneven(), mesh_of(2, 1), **options)
            hook = deltawire.torch.register(model, "fp32")
            train_step(model, rank, 0)
            for name in ("one", "odd", "wide") if fails else ():
                fail_amid(model, rank, name)
                model.reset_iter_state()
            for setter in ACCUMULATIONS if fails else ():
                accumulate(model, rank, setter)
                fail_amid(model, rank, "odd")
                model.reset_iter_state()
            for step in range(1, 3):
                train_step(model, rank, step)
            for setter in ACCUMULATIONS:
                model.zero_grad()
                accumulate(model, rank, setter)
                loss_of(model, rank, 3).backward()
                descend(model)
            prints.append(fingerprint(model))
            metrics = hook.metrics()
            hook.close()
        found.append((prints, metrics["steps"], metrics["total_buckets"]))
    return found


def test_a_pass_that_was_cut_short_leaves_nothing_behind(of_two):
    for found in of_two(go_on_after_passes_that_were_cut_short):
        for (never_failed, went_on), steps, buckets in found:
            assert went_on == never_failed and steps == 5
            # What had left belongs to the next step: of the pass that failed in `wide`.
            assert buckets == 1 + 5 * (3 + 1)


def native_all_reduces(action) -> int:
    """How many torch starts meanwhile on this rank."""
    native, seen = dist.all_reduce, []
    dist.all_reduce = lambda *given, **named: seen.append(1) or native(*given, **named)
    try:
        action()
    finally:
        dist.all_reduce = native
    return len(seen)


def take_over(rank, world_size, report):
    mesh = mesh_of(2, 2)
    model = cut(Uneven(), mesh)
    before = native_all_reduces(lambda: train_step(model, rank, 0))
    with torch.no_grad():
        loss_of(model, rank, 1)  # leaves the root's own parameters gathered
    hook = deltawire.torch.register(model, "fp32")
    after = native_all_reduces(lambda: train_step(model, rank, 1))
    resting = model.wide.weight
    loss_of(model, rank, 2)
    is_cut_again = model.wide.weight is resting
    hook.close()
    return before, after, is_cut_again


def test_torch_does_not_all_reduce_any_more_and_cuts_as_before(of_four):
    for before, after, is_cut_again in of_four(take_over):
        assert before == 3 and after == 0
        assert is_cut_again, "after a forward pass parameters lie as after fully_shard(int)"


def one_replica(rank, world_size, report):
    plain, model = cut(Uneven(), mesh_of(1, 2)), cut(Uneven(), mesh_of(1, 2))
    hook = deltawire.torch.register(model, "fp32")
    for step in range(STEPS):
        train_step(plain, rank, step)
        train_step(model, rank, step)
    hook.load_state_dict(hook.state_dict())
    assert "wide.weight" in str(hook.explain())
    metrics, alike = hook.metrics(), fingerprint(model) == fingerprint(plain)
    hook.close()
    with pytest.raises(deltawire.DeltawireError, match="the hook is closed; register the model"):
        train_step(model, rank, 0)
    return alike, metrics["steps"], metrics["total_bytes_sent"]


def test_a_single_replica_trains_as_plain_fsdp_and_sends_nothing(of_two):
    for equal, steps, sent in of_two(one_replica):
        assert equal and steps == STEPS and sent == 0


def train_lossy(rank, world_size, report):
    model = cut(Uneven(), mesh_of(2, 2))
    hook = deltawire.torch.register(model, "3lc:s=1.75", min_elements=8)
    for step in range(STEPS):
        train_step(model, rank, step)
    digests = [record["digest"] for record in hook.step_records]
    with pytest.raises(TypeError):
        copy.copy(hook)
    with pytest.raises(TypeError):
        pickle.dumps(hook)
    explained = str(hook.explain())
    ratio = hook.metrics()["total_ratio"]
    hook.close()
    closed = raised(deltawire.DeltawireError, train_step, model, rank, 0)
    again = deltawire.torch.register(model, "fp32")
    train_step(model, rank, 0)
    return (
        fingerprint(model),
        digests,
        explained,
        ratio,
        closed.code,
        again.metrics()["steps"],
    )


def test_lossy_codecs_keep_replicas_bit_equal(of_four):
    ranks = of_four(train_lossy)
    for one, other in ((0, 2), (1, 3)):
        assert ranks[one][:2] == ranks[other][:2], "replicas differ"
    for _, digests, explained, ratio, closed, again in ranks:
        assert len(set(digests)) == STEPS
        assert "wide.weight" in explained and "3lc" in explained and ratio > 3
        assert closed == "State" and again == 1


def flush(rank, world_size, report):
    """By dtype of the reduction, step by step: how far what came is from what was asked for, beyond
    the rounding of each mean; and bytes of a bare value."""
    roundings = {torch.float32: 0.0, torch.bfloat16: 2.0**-8}
    return [flushed(dtype, rounding, rank) for dtype, rounding in roundings.items()]


def flushed(dtype, rounding, rank):
    mesh, policy = mesh_of(2, 2), MixedPrecisionPolicy(reduce_dtype=dtype)
    plain, ours = (cut(Uneven(), mesh, mp_policy=policy) for _ in range(2))
    hook = deltawire.torch.register(ours, "topk:k=50%", min_elements=8)
    short, moved, gaps = 0.0, 0.0, []
    for step in range(5):
        for model in (plain, ours):
            model.zero_grad()
            # Not 0: a rank with nothing but zeros has no part in a step.
            (loss_of(model, rank, step) * (1.0 if step < 3 else 1e-9)).backward()
        due, came = (torch.cat([g.flatten() for g in gradients(m)]) for m in (plain, ours))
        short, moved = short + due - came, moved + due.abs() + came.abs()
        gaps.append((short.abs() - rounding * moved).max().item())
    rows = {row.name: row for row in hook.explain().rows}
    hook.close()
    return gaps, rows["wide.weight"].bare_bytes / rows["wide.weight"].elements


def test_what_was_not_sent_comes_later(of_four):
    """Sum of means + residuals = sum of gradients: without new gradients residuals run empty. What
    is of 16 bits waits in float32, and each mean is rounded once."""
    for wide, narrow in of_four(flush):
        for gaps, _ in (wide, narrow):
            assert gaps[2] > 1e-3, "nothing was held back: nothing was tested"
            assert gaps[-1] < 1e-6
        assert wide[1] == 4 and narrow[1] == 2


def test_gcomp_cuts_by_what_the_optimizer_of_a_sharded_model_can_see(of_four):
    for ratio, half, equal in of_four(cut_what_the_optimizer_cant_see):
        assert equal, "the rows' significance is not the whole's"
        assert ratio < 0.9 and half > 0


def save_and_load(rank, world_size, report):
    mesh = mesh_of(2, 2)
    one = cut(Uneven(), mesh)
    hook = deltawire.torch.register(one, "topk:k=20%", min_elements=8)
    for step in range(3):
        train_step(one, rank, step)
    kept = hook.state_dict()
    name, ranges = f"rank {rank}", kept["ranges"][f"rank {rank}"][0]
    with tempfile.TemporaryDirectory() as folder:
        shared = [folder]
        dist.broadcast_object_list(shared, 0)
        dcp.save({"hook": hook}, checkpoint_id=shared[0])
        whole = {"hook": hook.state_dict()}
        whole["hook"]["residuals"][name] = (torch.zeros(0, dtype=torch.uint8),)
        dcp.load(whole, checkpoint_id=shared[0])
        dist.barrier()
    weights = [p.detach().to_local().clone() for p in one.parameters()]
    for step in range(3, 5):
        train_step(one, rank, step)
    hook.close()

    other = Uneven()  # in other groups and another order
    fully_shard([other.odd, other.wide], mesh=mesh)
    fully_shard(other, mesh=mesh)
    hook = deltawire.torch.register(other, "topk:k=20%", min_elements=8)
    refused = []
    for change in (
        {"ranges": {name: ({**ranges, "wide.weight": (0, 1, 18)},)}},
        {"ranges": {name: ({"wide.weight": (0, 0, 17)},)}},
        {"residuals": {"rank 9": kept["residuals"][name]}},
    ):
        refused.append(str(raised(ValueError, hook.load_state_dict, {**kept, **change})))
    hook.load_state_dict(whole["hook"])
    with torch.no_grad():
        for parameter, value in zip(other.parameters(), weights, strict=True):
            parameter.to_local().copy_(value)
    for step in range(3, 5):
        train_step(other, rank, step)
    steps = hook.state_dict()["steps"]
    assert str(hook.explain()).count("wide.weight") == 1, "two modules of one group count twice"
    hook.close()
    return fingerprint(one) == fingerprint(other), steps, ranges, refused


def test_a_state_fits_the_model_in_other_groups(of_four):
    ranks = of_four(save_and_load)
    for number, (equal, steps, ranges, refused) in enumerate(ranks):
        assert equal, "the run that was loaded goes on differently"
        assert steps == 5
        assert ranges["wide.weight"] == ((0, 17, 33) if number % 2 else (0, 0, 17))
        assert "rows (0, 1, 18)" in refused[0] and "'wide.weight'" in refused[0]
        assert "other parameters" in refused[1] and "of rank 9, not of" in refused[2]


@pytest.mark.skipif(not ON_TWINS, reason="needs target deltawire (C library)")
@pytest.mark.parametrize("world_size", [4, 2], ids=["cut", "whole"])
def test_training_on_twins_is_the_cpus(of_two, of_four, world_size):
    ranks = {2: of_two, 4: of_four}[world_size](train_on_twins)
    for (spec, *_), rank in itertools.product(OF_RANKS[world_size], range(world_size)):
        for one, other in zip(*ranks[rank][spec], strict=True):
            for what in one[0]:
                assert one[0][what] == other[0][what], f"{spec}, rank {rank}: {what}"
            assert one[1] != other[1], f"{spec}: the device had nothing to do, or all"
