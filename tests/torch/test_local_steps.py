"""Rounds of local steps: federated averaging to the bit, equal replicas for every codec, masks."""

import copy

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed as dist
from local_rounds import mean_of
from models import WIDTH, Net, backward, batch, fingerprint, steps_by, wrapped
from ranks import results

ROUNDS = 3
LOCAL_STEPS = 4
SBC = "sbc:p=5%"


class Mixed(torch.nn.Module):
    """What models have: a shared, a frozen, an unused, an empty parameter; strides; statistics."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.conv = torch.nn.Conv2d(8, 16, 3, padding=1).to(memory_format=torch.channels_last)
        self.norm = torch.nn.BatchNorm2d(16)
        self.last = torch.nn.Linear(2 * WIDTH, WIDTH)
        self.tied = torch.nn.Linear(WIDTH, WIDTH)
        self.tied.weight = self.first.weight
        self.unused = torch.nn.Linear(WIDTH, WIDTH)
        self.nothing = torch.nn.Parameter(torch.empty(0))
        self.frozen = torch.nn.Parameter(torch.randn(WIDTH), requires_grad=False)

    def forward(self, x):
        y = torch.tanh(self.first(x) + self.tied(x) + self.frozen)
        y = self.norm(self.conv(y.view(-1, 8, 4, 2).to(memory_format=torch.channels_last)))
        return self.last(y.flatten(1))


def momentum_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.002)


def local_step(model, optimizer, rank, step):
    backward(model, rank, step)
    optimizer.step()


def one_step_a_round(rank, world_size, report):
    module = Net()
    plain = wrapped(copy.deepcopy(module))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05)
    trainer = deltawire.torch.LocalSteps(module, optimizer, steps=1, reducer="fp32")
    worst = 0.0
    for step in range(6):
        local_step(plain, theirs, rank, step)
        backward(module, rank, step)
        trainer.step()
        for ours, other in zip(module.parameters(), plain.parameters(), strict=True):
            worst = max(worst, ((ours - other).abs().max() / other.abs().max()).item())
    trainer.close()
    return worst, trainer.round


@pytest.mark.parametrize("world_size", [2, 3])
def test_one_step_of_plain_sgd_is_ddp(world_size):
    for worst, rounds in results(one_step_a_round, world_size):
        assert rounds == 6
        assert worst < 1e-6


def average_by_hand(rank, world_size, report, optimizer_of):
    """Also with another bucket size on the way: it moves no bit."""
    module, by_hand = Net(), Net()
    optimizer, theirs = optimizer_of(module), optimizer_of(by_hand)
    trainer = deltawire.torch.LocalSteps(
        module, optimizer, steps=LOCAL_STEPS, reducer="direct(fp32)", bucket_bytes=40_000
    )
    for number in range(ROUNDS):
        start = [p.detach().clone() for p in by_hand.parameters()]
        for step in range(number * LOCAL_STEPS, (number + 1) * LOCAL_STEPS):
            local_step(by_hand, theirs, rank, step)
            assert trainer.local_steps == step % LOCAL_STEPS
            backward(module, rank, step)
            trainer.step()
        for before, parameter in zip(start, by_hand.parameters(), strict=True):
            parameter.data.copy_(before + mean_of(parameter.detach() - before))
        assert fingerprint(module) == fingerprint(by_hand), f"round {number}"
    records, metrics = trainer.step_records, trainer.metrics()
    trainer.close()
    return [record["local_steps"] for record in records], metrics, fingerprint(module)


@pytest.mark.parametrize("optimizer_of", [momentum_sgd, adam])
def test_fp32_is_federated_averaging_bit_for_bit(optimizer_of):
    elements = sum(p.numel() for p in Net().parameters())
    values = results(average_by_hand, 3, optimizer_of)
    assert len({value[2] for value in values}) == 1
    for local_steps, metrics, _ in values:
        assert local_steps == [LOCAL_STEPS] * ROUNDS
        assert metrics["steps"] == ROUNDS and metrics["elements"] == elements
        assert metrics["buckets"] == 3
        assert metrics["traffic_bytes_sent"] >= metrics["total_bytes_sent"] > 0


def train(rank, world_size, report, specs):
    """From different weights and statistics on every rank."""
    seen = {}
    for spec in specs:
        torch.manual_seed(rank)
        model = Mixed()
        model.norm.running_mean += rank
        optimizer = momentum_sgd(model)
        trainer = deltawire.torch.LocalSteps(
            model, optimizer, steps=2, reducer=spec, min_elements=100, bucket_bytes=20_000
        )
        assert model.norm.running_mean.abs().max() == 0, "buffers start as rank 0's"
        prints, statistics = [fingerprint(model)], []
        unused = model.unused.weight.detach().clone()
        for step in range(2 * ROUNDS):
            backward(model, rank, step)
            trainer.step()
            if step % 2 == 0:
                statistics.append(model.norm.running_mean.clone())
            else:
                prints.append(fingerprint(model))
        digests = [record["digest"] for record in trainer.step_records]
        assert torch.equal(model.unused.weight, unused)
        seen[spec] = prints, digests, statistics[-1].sum().item(), str(trainer.last_error)
        trainer.close()
    return seen


@pytest.mark.parametrize("world_size", [2, 4])
def test_replicas_are_bit_equal_after_every_round(world_size):
    specs = ["fp32", "3lc", "sbc", "direct(sbc)", "ring(onebit)"]
    if world_size == 2:
        specs += [info.name for info in deltawire.codecs() if info.name not in specs]
    values = results(train, world_size, specs)
    for spec in values[0]:
        prints, digests, _, error = zip(*(value[spec] for value in values), strict=True)
        assert set(error) == {"None"}, spec
        assert all(p == prints[0] for p in prints), f"{spec}: replicas differ"
        assert all(d == digests[0] for d in digests), f"{spec}: digests differ"
        assert len(set(prints[0])) == ROUNDS + 1, f"{spec}: a round changed nothing"
        assert len({value[spec][2] for value in values}) == world_size, "statistics aren't local"


def masked_momentum(rank, world_size, report, optimizer_of, key, spec, masks):
    torch.manual_seed(3)
    model = Mixed()
    optimizer = optimizer_of(model)
    trainer = deltawire.torch.LocalSteps(
        model, optimizer, steps=99, reducer=spec, min_elements=100, mask_momentum=masks
    )
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    steps_by(trainer, model, rank, range(2))
    counts, strided = {"kept": 0, "masked": 0}, 0
    expected = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter)
        if not state or not parameter.numel():
            continue
        momentum = state[key].clone()
        strided += not momentum.is_contiguous()
        change = (parameter.detach() - before[name]).contiguous().numpy()
        if spec == SBC and change.size >= 100 and masks:
            sent = deltawire.decode(deltawire.encode(change, SBC))
            momentum[torch.from_numpy(sent) != 0] = 0
        expected[name] = momentum
    others = [s.clone() for p in optimizer.state.values() for n, s in p.items() if n != key]
    trainer.exchange()
    for name, parameter in model.named_parameters():
        if name in expected:
            found = optimizer.state[parameter][key]
            assert torch.equal(found, expected[name]), name
            counts["masked"] += int((found == 0).sum())
            counts["kept"] += int((found != 0).sum())
    now = [s for p in optimizer.state.values() for n, s in p.items() if n != key]
    assert all(map(torch.equal, others, now)), "more than momentum was masked"
    trainer.close()
    return counts, strided


@pytest.mark.parametrize(
    ("optimizer_of", "key", "spec", "masks"),
    [
        (momentum_sgd, "momentum_buffer", SBC, True),
        (adam, "exp_avg", SBC, True),
        (momentum_sgd, "momentum_buffer", SBC, False),
        (momentum_sgd, "momentum_buffer", "3lc", True),
        (momentum_sgd, "momentum_buffer", "ring(onebit)", True),
    ],
)
def test_momentum_is_zero_exactly_where_this_rank_sent(optimizer_of, key, spec, masks):
    for counts, strided in results(masked_momentum, 2, optimizer_of, key, spec, masks):
        print(counts)
        assert strided >= 1, "every momentum was contiguous: strides were not tested"
        if spec == SBC and masks:
            assert 0.01 < counts["masked"] / counts["kept"] < 0.1
        else:
            assert counts["masked"] < 0.01 * counts["kept"]


def changing_steps(rank, world_size, report):
    model = Net()
    optimizer = momentum_sgd(model)
    trainer = deltawire.torch.LocalSteps(
        model, optimizer, steps=lambda number: number + 1, reducer="3lc"
    )
    rounds = []

    def train(steps):
        for _ in range(steps):
            backward(model, rank, trainer.round)
            trainer.step()
            rounds.append(trainer.round)

    train(6)  # rounds of 1, 2, 3
    trainer.steps = 2
    train(3)
    trainer.steps = 5
    train(4)  # one step is there already
    train(3)
    trainer.steps = 1  # less than what is there
    train(1)
    trainer.exchange()
    trainer.exchange()  # nothing to do
    train(1)
    equal = fingerprint(model)
    for bad in (0, -1, 2.5, True, "3"):
        with pytest.raises(ValueError, match="whole number"):
            trainer.steps = bad
    trainer.steps = lambda number: 0
    with pytest.raises(ValueError, match=r"steps\(7\)=0"):
        trainer.step()
    assert trainer.last_error is None and fingerprint(model) == equal, "the bad schedule's step"
    trainer.close()
    return rounds, [record["local_steps"] for record in trainer.step_records], equal


def test_steps_may_change():
    values = results(changing_steps, 2)
    assert values[0] == values[1]
    rounds, local_steps, _ = values[0]
    assert rounds == [1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 4, 4, 5, 5, 5, 5, 6, 7]
    assert local_steps == [1, 2, 3, 2, 5, 4, 1]


def alone_and_with_closure(rank, world_size, report):
    """One rank exchanges with nobody: with fp32 its optimizer's steps are all there is."""
    model, twin = Net(), Net()
    optimizer, theirs = (torch.optim.SGD(m.parameters(), lr=0.05) for m in (model, twin))

    with deltawire.torch.LocalSteps(model, optimizer, steps=1, reducer="fp32") as trainer:
        losses = [trainer.step(lambda: backward(model, rank, 0)) for _ in range(3)]
    for _ in range(3):
        local_step(twin, theirs, rank, 0)
    gap = max(
        (a - b).abs().max().item()
        for a, b in zip(model.parameters(), twin.parameters(), strict=True)
    )
    return losses, gap, trainer.closed, trainer.world_size, trainer.metrics()


def test_one_rank_alone_and_a_closure():
    ((losses, gap, closed, world_size, metrics),) = results(alone_and_with_closure, 1)
    assert losses[0] > losses[1] > losses[2] and gap < 1e-6
    assert closed and world_size == 1
    assert metrics["raw_bytes"] == metrics["total_bytes_sent"] == 0
    assert metrics["ratio"] is None and metrics["total_ratio"] is None


def sites_learn(rank, world_size, report, spec):
    """A linear teacher, seen by every site through inputs of its own."""
    torch.manual_seed(5)
    teacher = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
    model = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    trainer = deltawire.torch.LocalSteps(model, optimizer, steps=5, reducer=spec)
    losses = []
    for step in range(300):
        x, _ = batch(rank, step)
        optimizer.zero_grad()
        loss = (model(x) - x @ teacher).square().mean()
        loss.backward()
        trainer.step()
        losses.append(loss.item())
    metrics = trainer.metrics()
    trainer.close()
    return sum(losses[:5]) / 5, sum(losses[-5:]) / 5, metrics["total_bytes_sent"]


def test_sbc_learns_with_few_bytes():
    values = results(sites_learn, 2, SBC)
    print(values)
    uncompressed = 4 * (WIDTH * WIDTH + WIDTH) * 300
    for first, last, sent in values:
        assert last < first / 5
        assert sent * 50 < uncompressed


def in_a_subgroup(rank, world_size, report):
    """Ranks 1 and 2 train together; their group's first rank gives the weights."""
    pair = dist.new_group([1, 2])
    torch.manual_seed(rank)
    network = torch.nn.Linear(WIDTH, WIDTH)
    before = fingerprint(network)
    if rank == 0:
        return before
    optimizer = torch.optim.SGD(network.parameters(), 0.05)
    settings = {"steps": 1, "reducer": "fp32", "group": pair}
    trainer = deltawire.torch.LocalSteps(network, optimizer, **settings)
    start = fingerprint(network)
    network(torch.ones(2, WIDTH) * rank).sum().backward()
    trainer.step()
    return before, start, fingerprint(network), trainer.rank, trainer.world_size


def test_a_trainer_on_a_subgroup():
    alone, first, second = results(in_a_subgroup, 3)
    assert first[1] == second[1] == first[0] != second[0]
    assert first[2] == second[2] != first[1]
    assert first[3:] == (0, 2) and second[3:] == (1, 2) and alone != first[0]
