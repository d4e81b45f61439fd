"""Local steps of a model on a GPU: every exchange leaves, bit for bit, the weights, momenta,
residuals and states that the same weights leave on the CPU."""

import copy
import functools

import deltawire.torch
import gpu
import pytest
import torch
from deltawire.torch.local import state as local_state
from gpu import DEVICE, OnDevice, backward, batch, results, same_bits
from local_rounds import NESTEROV, WrittenOut, flat_of, saved
from models import fingerprint, wrapped

pytestmark = gpu.needs_gpu
STEPS = 4
CODECS = ["fp32", "bf16", "int8", "3lc:s=1.75", "topk:k=10%", "gather(sbc:p=10%)", "ring(fp8)"]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.002)


class Side:
    """A model, its optimizer and its trainer."""

    def __init__(self, model, make_optimizer, spec, **options):
        self.model, self.optimizer = model, make_optimizer(model)
        options = {"steps": STEPS, "mask_momentum": None, **options}
        self.trainer = deltawire.torch.LocalSteps(model, self.optimizer, spec, **options)

    def take(self, other):
        """The other one's weights and momenta, as an own local step would have left them."""
        pairs = list(zip(self.model.parameters(), other.model.parameters(), strict=True))
        with torch.no_grad():
            for ours, theirs in pairs:
                ours.copy_(theirs)
        for ours, theirs in pairs:
            for key, value in other.optimizer.state[theirs].items():
                self.optimizer.state[ours][key] = copy.deepcopy(value).cpu()

    def momenta(self):
        for parameter in self.model.parameters():
            yield from self.optimizer.state[parameter].values()


def on_cpu(model, *args, **options):
    """The same model's side on the CPU, where nothing is staged."""
    options["twins"] = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_FORCE_STAGING", "off")
        return Side(copy.deepcopy(model).cpu(), *args, **options)


def compare(ours, theirs, where):
    for one, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        assert same_bits(one, other), where
    for one, other in zip(ours.momenta(), theirs.momenta(), strict=True):
        assert same_bits(one, other), f"{where}: momentum"


def leaves(value):
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def same_state(ours, theirs):
    pairs = list(zip(leaves(ours), leaves(theirs), strict=True))
    for one, other in pairs:
        if isinstance(one, torch.Tensor):
            assert one.device.type == "cpu" and same_bits(one, other)
        else:
            assert one == other
    return len(pairs)


def against_the_cpu(rank, world_size, report, specs, make_optimizer, dtype, options):
    """Trains on the device; the CPU's side gets its weights after each local step."""
    found = []
    for spec in specs:
        ours = Side(OnDevice(dtype), make_optimizer, spec, **options)
        theirs = on_cpu(ours.model, make_optimizer, spec, **options)
        for step in range(3 * STEPS - 1):
            backward(ours.model, rank, step, dtype)
            ours.optimizer.step()
            theirs.take(ours)
            ours.trainer.stepped()
            theirs.trainer.stepped()
            compare(ours, theirs, f"{spec}, step {step}")
            if step == STEPS + 1:
                same_state(flat_of(ours.trainer), flat_of(theirs.trainer))
        for each in (ours, theirs):
            each.trainer.exchange()
        compare(ours, theirs, spec)
        same_state(flat_of(ours.trainer), flat_of(theirs.trainer))
        assert (
            ours.trainer.metrics()["total_bytes_sent"]
            == theirs.trainer.metrics()["total_bytes_sent"]
        )
        assert {p.device.type for p in ours.model.parameters()} == {DEVICE.type}
        coded_on = DEVICE.type if options.get("twins") else "cpu"
        assert ours.trainer.explain().coded_on.startswith(coded_on)
        for each in (ours, theirs):
            each.trainer.close()
        found.append(fingerprint(ours.model))
    return found


def check(specs, make_optimizer=sgd, dtype=torch.float32, world_size=2, **options):
    values = results(against_the_cpu, world_size, specs, make_optimizer, dtype, options)
    assert all(value == values[0] for value in values), "the replicas differ"


@pytest.mark.timeout(240)
def test_weights_and_momenta_are_those_of_the_cpu():
    check(CODECS)


@gpu.needs_twins
@pytest.mark.timeout(240)
def test_twins_give_the_weights_and_momenta_of_the_cpu():
    check(CODECS, twins=gpu.ON_DEVICE)
    check(["3lc:s=1.75"], twins=gpu.ON_DEVICE, overlap=2, fragments=3)


def test_three_ranks_and_adams_momenta():
    check(["3lc:s=1.75", "gather(sbc:p=10%)"], adam, world_size=3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_16_bits(dtype):
    check(["fp32", "3lc:s=1.75", "gather(sbc:p=10%)"], dtype=dtype)
    check(["fp32", "3lc:s=1.75"], dtype=dtype, overlap=2, fragments=3)


@pytest.mark.parametrize(
    "options",
    [
        {"fragments": 3},
        {"fragments": 3, "overlap": 1},
        {"fragments": 3, "overlap": 1, "mixing": 0.5},
        {"delay": 1},
    ],
    ids=str,
)
def test_exchanges_that_local_steps_overlap(options):
    check(["fp32", "3lc:s=1.75"], bucket_bytes=20_000, **options)


def by_hand(rank, world_size, report, cases):
    """DiLoCo, whose outer optimizer runs on the device, as the algorithm written out there."""
    for outer, fragments, overlap, mixing in cases:
        parts = [slice(at, at + 12 // fragments) for at in range(0, 12, 12 // fragments)]
        options = {"outer": outer, "fragments": fragments, "overlap": overlap, "mixing": mixing}
        ours = Side(OnDevice(), sgd, "direct(fp32)", **options)
        twin = OnDevice()
        theirs = sgd(twin)
        written = WrittenOut(twin, parts, outer, overlap=overlap, mixing=mixing)
        turns = [-(-(n + 1) * STEPS // fragments) for n in range(fragments)]
        for step in range(3 * STEPS):
            for model, optimizer in ((ours.model, ours.optimizer), (twin, theirs)):
                backward(model, rank, step)
                optimizer.step()
            ours.trainer.stepped()
            written.stepped()
            if (done := step % STEPS + 1) in turns:
                written.exchange(turns.index(done))
            for one, other in zip(ours.model.parameters(), twin.parameters(), strict=True):
                assert same_bits(one, other), f"{options}, step {step}"
        velocity = ours.trainer.outer.state
        assert {p.device.type for p in velocity} == {DEVICE.type}
        ours.trainer.close()
    return True


def test_diloco_is_the_algorithm_written_out_on_the_device():
    cases = [
        (NESTEROV, 1, 0, None),
        (NESTEROV, 3, 0, None),
        (NESTEROV, 3, 1, 0.5),
        (functools.partial(torch.optim.Adam, lr=1e-2), 1, 2, None),
    ]
    assert all(results(by_hand, 2, cases))


def moved_over(rank, world_size, report, options):
    """States saved with an exchange under way, loaded on the other side, as files."""
    ours = Side(OnDevice(), sgd, "3lc:s=1.75", **options)
    for step in range(STEPS + 1):
        backward(ours.model, rank, step)
        ours.optimizer.step()
        ours.trainer.stepped()
    state = ours.trainer.state_dict()
    theirs = on_cpu(ours.model, sgd, "3lc:s=1.75", **options)
    again = Side(OnDevice(), sgd, "3lc:s=1.75", **options)
    compared = 0
    for source, target in ((ours, theirs), (theirs, again)):  # to the CPU, and back
        file = saved(source.trainer.state_dict())
        target.trainer.load_state_dict(torch.load(file, weights_only=False))
        compared += same_state(state, target.trainer.state_dict())
    theirs.take(ours), again.take(ours)
    for step in range(STEPS + 1, 2 * STEPS + 2):
        backward(ours.model, rank, step)
        ours.optimizer.step()
        theirs.take(ours), again.take(ours)
        for each in (ours, theirs, again):
            each.trainer.stepped()
        compare(ours, theirs, f"step {step}")
        compare(ours, again, f"step {step}")
    for each in (ours, theirs, again):
        each.trainer.close()
    return compared, state["common"][0]["under_way"] is not None


@pytest.mark.parametrize("options", [{}, {"delay": 1}, {"fragments": 2, "overlap": 2}], ids=str)
def test_states_go_from_the_gpu_to_the_cpu_and_back(options):
    for compared, under_way in results(moved_over, 2, options):
        assert compared > 60 and under_way == bool(options)


def all_of_them(rank, world_size, report):
    """The states of both ranks, some still on the device as a caller's own load may leave them, for
    another rank's share."""
    ours = Side(OnDevice(torch.bfloat16), sgd, "3lc:s=1.75", delay=1)
    for step in range(STEPS + 1):
        backward(ours.model, rank, step, torch.bfloat16)
        ours.optimizer.step()
        ours.trainer.stepped()
    states = [None] * world_size
    torch.distributed.all_gather_object(states, ours.trainer.state_dict())
    shares = []
    for device in ("cpu", DEVICE):
        loaded = torch.load(saved(states), map_location=device, weights_only=False)
        flats = local_state.flats_of(loaded, (0, 1))
        shares.append(local_state.share_of(flats, (0, 1)))
    for one, other in zip(leaves(shares[0]), leaves(shares[1]), strict=True):
        assert not isinstance(one, torch.Tensor) or same_bits(one, other)
    ours.trainer.close()
    return True


def test_states_of_all_ranks_are_divided_alike_wherever_they_lie():
    assert all(results(all_of_them, 2))


def averaged(rank, world_size, report):
    """Post-local SGD: a warm-up with DDP, then rounds; the same on the CPU."""
    ours = Side(OnDevice(), sgd, "3lc:s=1.75")
    theirs = on_cpu(ours.model, sgd, "3lc:s=1.75")
    pairs = [
        (each, deltawire.torch.Averager(each.trainer, warmup_steps=3)) for each in (ours, theirs)
    ]
    model = wrapped(ours.model)
    for step in range(3 + 2 * STEPS):
        if step < 3:
            backward(model, rank, step)
        else:
            with model.no_sync():
                backward(model, rank, step)
        ours.optimizer.step()
        theirs.take(ours)
        for _, averager in pairs:
            averager.average_parameters(None)
        compare(ours, theirs, f"step {step}")
    found = fingerprint(ours.model), ours.trainer.round
    for each in (ours, theirs):
        each.trainer.close()
    return found


def test_the_averager_of_post_local_sgd():
    values = results(averaged, 2)
    assert values[0] == values[1] and values[0][1] == 2


class Deep(torch.nn.Module):
    """Large enough that a copy takes a while."""

    def __init__(self, first=DEVICE):
        super().__init__()
        torch.manual_seed(7)
        self.first = torch.nn.Linear(64, 1500, device=first)
        torch.manual_seed(8)
        self.rest = torch.nn.Sequential(*(torch.nn.Linear(1500, 1500) for _ in range(4))).to(DEVICE)

    def forward(self, x):
        y = self.rest(self.first(x.to(self.first.weight.device)).to(DEVICE))
        return y[:, :64]


def large(rank, world_size, report, first, own_stream):
    """Overlapped rounds of a large model; pinned memory after each round."""
    ours = Side(Deep(first), sgd, "int8", fragments=2, overlap=1)
    theirs = on_cpu(ours.model, sgd, "int8", fragments=2, overlap=1)
    pinned = []
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step in range(3 * STEPS):
            x, y = batch(rank, step)
            ours.optimizer.zero_grad()
            (ours.model(x) - y).square().mean().backward()
            torch.cuda._sleep(20_000_000)  # what follows is late
            ours.optimizer.step()
            theirs.take(ours)
            ours.trainer.stepped()
            theirs.trainer.stepped()
            compare(ours, theirs, f"step {step}")
            pinned.append(torch.cuda.host_memory_stats()["allocated_bytes.current"])
        ours.trainer.exchange()
        theirs.trainer.exchange()
        compare(ours, theirs, "at the end")
    block, need = ours.trainer._exchange._staging._block, ours.trainer._weights.changes.host_bytes
    found = block.is_pinned(), block.numel() - need, pinned[-1] - pinned[STEPS], need
    for each in (ours, theirs):
        each.trainer.close()
    return found


@gpu.needs_cuda
@pytest.mark.parametrize(
    ("first", "own_stream"),
    [(DEVICE, False), (DEVICE, True), (torch.device("cpu"), False)],
    ids=str,
)
def test_large_rounds_in_any_stream_and_on_two_devices(first, own_stream):
    for is_pinned, more, grown, need in results(large, 2, first, own_stream):
        print(f"largest fragment {need} bytes, block {more} more, pinned later {grown}")
        assert is_pinned and 0 <= more < 64 * 300
        assert grown == 0
