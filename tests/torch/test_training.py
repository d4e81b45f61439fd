"""Training through the hook: fp32 equals plain DDP, every codec keeps replicas bit-equal."""

import copy
import time

import deltawire
import deltawire.torch
import pytest
import torch
from local_rounds import mean_of
from models import Net, backward, fingerprint, train_step, train_steps, wrapped
from ranks import results, started

STEPS = 4


def local_gradients(module, rank, step):
    """What this rank alone would compute, one flat array per parameter."""
    backward(module, rank, step)
    return [p.grad.detach().cpu().clone() for p in module.parameters()]


def compare_with_plain(rank, world_size, report):
    module = Net()
    plain, hooked = wrapped(copy.deepcopy(module)), wrapped(module)
    hook = deltawire.torch.register(hooked, "fp32")
    bit_equal, worst = True, 0.0
    for step in range(STEPS):
        alone = copy.deepcopy(module)
        expected = [mean_of(each).numpy() for each in local_gradients(alone, rank, step)]
        backward(plain, rank, step)
        backward(hooked, rank, step)
        for ours, theirs, stated in zip(
            hooked.parameters(), plain.parameters(), expected, strict=True
        ):
            assert ours.grad.cpu().numpy().tobytes() == stated.tobytes(), (
                "not the stated arithmetic"
            )
            bit_equal &= torch.equal(ours.grad, theirs.grad)
            gap = (ours.grad - theirs.grad).norm() / theirs.grad.norm()
            worst = max(worst, gap.item())
        with torch.no_grad():  # both go on from the same point: rounding doesn't pile up
            for ours, theirs in zip(hooked.parameters(), plain.parameters(), strict=True):
                ours -= 0.05 * ours.grad
                theirs.copy_(ours)
    metrics = hook.metrics()
    hook.close()
    return bit_equal, worst, metrics


@pytest.mark.parametrize("world_size", [2, 3])
def test_fp32_is_the_stated_sum_and_near_plain_ddp(world_size):
    elements = sum(p.numel() for p in Net().parameters())
    sent = 0
    for rank, (bit_equal, worst, metrics) in enumerate(results(compare_with_plain, world_size)):
        print(f"rank {rank} of {world_size}: bit-equal to plain {bit_equal}, gap {worst:.1e}")
        assert worst <= 1e-6
        assert metrics["steps"] == STEPS
        assert metrics["elements"] == elements
        assert metrics["traffic_bytes_sent"] >= metrics["total_bytes_sent"]
        assert metrics["traffic_bytes_received"] > 0
        sent += metrics["bytes_sent"]
    # Every value goes to its owner N - 1 times and comes back N - 1 times; headers on top.
    values = 2 * (world_size - 1) * 4 * elements
    assert values <= sent <= 1.1 * values


def train(rank, world_size, report, codecs, ddp_options, sometimes):
    seen = {}
    for name in codecs:
        model = wrapped(Net(sometimes), **ddp_options)
        # Without an optimizer gcomp loses nothing: the same model as fp32's.
        spec = "gcomp:cut=18" if name == "gcomp" else name
        hook = deltawire.torch.register(model, spec, min_elements=100)
        train_steps(model, rank, range(STEPS))
        records = list(hook.step_records)
        seen[name] = (
            fingerprint(model),
            [record["digest"] for record in records],
            [record["buckets"] for record in records],
            sum(record["bytes_sent"] for record in records),
        )
        hook.close()
    return seen


MODES = {
    "default": ({}, False),
    "static_graph": ({"static_graph": True}, False),
    "find_unused": ({"find_unused_parameters": True}, True),
}
SOME = ["fp32", "3lc", "gcomp", "topk"]  # exact, with residuals, in planes, with positions


@pytest.mark.parametrize(("world_size", "mode"), [(2, "default"), *((3, mode) for mode in MODES)])
def test_replicas_stay_bit_equal_through_the_bucket_rebuild(world_size, mode):
    """Modes and numbers of ranks concern the hook: one of them sees every codec."""
    ddp_options, sometimes = MODES[mode]
    every = [info.name for info in deltawire.codecs()]
    codecs = every if world_size == 2 else SOME
    ranks = results(train, world_size, codecs, ddp_options, sometimes)
    lossless = {info.name for info in deltawire.codecs() if info.lossless} & set(codecs)
    fingerprints = set()
    for codec, (state, digests, buckets, sent) in ranks[0].items():
        for other in ranks[1:]:
            assert other[codec][0] == state, f"{codec}: replicas differ"
            assert other[codec][1] == digests
        assert len(set(digests)) == len(digests), "the means of different steps look alike"
        assert max(buckets) > 1, "one bucket only: nothing was tested"
        if mode != "find_unused":
            assert buckets[0] == 1 and buckets[-1] > 1, "no bucket was rebuilt"
        if codec in lossless:
            assert state == ranks[0]["fp32"][0], f"{codec} lost something"
        else:
            fingerprints.add(state)
        if codec == "3lc":
            assert 8 * sent < ranks[0]["fp32"][3]
    assert len(fingerprints | {ranks[0]["fp32"][0]}) == len(ranks[0]) - len(lossless) + 1, (
        "two codecs gave the same model: one of them did nothing"
    )


def accumulate(rank, world_size, report):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc:s=1.75")
    losses = []
    for _ in range(30):
        x, y = torch.ones(8, 64), torch.full((8, 64), 0.5)
        model.zero_grad()
        with model.no_sync():
            (model(x) - y).square().mean().backward()
        loss = (model(x) - y).square().mean()
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= parameter.grad
    return losses, fingerprint(model), hook.metrics()["steps"]


def test_gradient_accumulation_and_learning():
    (losses, state, steps), other = results(accumulate, 2)
    assert state == other[1] and steps == 30
    assert losses[-1] < 0.5 * losses[0]


def shaped(rank, world_size, report):
    model = wrapped(Net())
    link = deltawire.LinkShape(bytes_per_second=1e6)
    deltawire.torch.register(model, "fp32", link=link)
    train_step(model, rank, 0)
    start = time.monotonic()
    train_step(model, rank, 1)
    return time.monotonic() - start


def test_a_shaped_link_takes_its_time():
    bytes_each_way = 4 * sum(p.numel() for p in Net().parameters())  # 100 KB: 0.1 s at 1 MB/s
    for seconds in results(shaped, 2):
        assert seconds > 0.6 * bytes_each_way / 1e6


def leave_without_close(rank, world_size, report):
    model = wrapped(Net())
    hook = deltawire.torch.register(model, "3lc")
    train_step(model, rank, 0)
    leave_without_close.kept = model, hook
    return hook.last_error


def test_a_process_ends_without_close():
    with started(leave_without_close, 2, fresh=[0]) as ranks:
        for outcome in ranks.outcomes().values():
            assert outcome.raised is None and outcome.value is None, outcome
        assert ranks.exit_codes() == [0, 0]


def drop_the_model(rank, world_size, report):
    for _ in range(3):  # the model goes, the hook with it, and its thread and sockets too
        model = wrapped(Net())
        deltawire.torch.register(model, "fp32")
        train_step(model, rank, 0)
        del model
    return len(deltawire.torch.core.abort._watcher.hooks())


def test_models_that_are_dropped_leave_nothing_behind():
    for alive in results(drop_the_model, 2):
        assert alive <= 1
