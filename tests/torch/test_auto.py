"""register(model, "auto"): which exchange the ranks choose, and that changing it loses nothing.

Where a link is slow here, its figures and the steps' times are given, not taken: decisions, changes
and what travels are real. Real links: test_auto_links.py.
"""

import copy
import os
import tempfile

import deltawire
import deltawire.torch
import pytest
import torch
import torch.distributed.checkpoint as dcp
from deltawire.torch.auto import chooser, codec_figures
from deltawire.torch.auto import decision as auto_decision
from deltawire.torch.auto.measuring import LinkProbe, StepClock, StepTimes
from models import WIDTH, Net, backward, batch, fingerprint, train_step, train_steps, wrapped
from ranks import attempted, results
from test_dtypes import Mixed
from test_dtypes import train as train_of_any_dtype
from watched import logged

TIERS = ("lossless", "near-lossless", "lossy")
# On a slow link, whose figures are given, fewer steps are measured than in training, and fewer
# rounds of each codec.
FEW, ROUNDS = 4, 2
TRIED = chooser.WARM_UP + 2 * FEW  # steps


def measured(tier="near-lossless", dtype="float32", is_slow=True):
    """Steps before the one that begins with a plan: each piece of what is measured takes one."""
    specs = ["fp32", *codec_figures.candidates(tier, {dtype})]
    rounds = ROUNDS * len(specs) if is_slow else codec_figures.Trials(specs, {}, 0).rounds
    steps = chooser.WARM_UP + (FEW if is_slow else chooser.MEASURED)
    return steps + LinkProbe.PIECES + rounds


MEASURE = measured("lossy")
DECIDED = MEASURE + TRIED


class GivenTimes(StepClock):
    """Counts real steps, and says they took what the test says, in seconds."""

    native, coded = 3.0, 0.4

    def times(self):
        return [
            StepTimes(
                tuple(0.01 for _ in each.ready),
                self.coded if each.coded else self.native,
                each.coded,
            )
            for each in super().times()
        ]


def believe_in_a_slow_link(watched=20, clock=GivenTimes, halves=False):
    """What is registered from now on has a link of a megabit, as it believes; it takes no halves in
    the native all-reduce unless a test is about them."""
    os.environ["DELTAWIRE_SHARED_MEMORY"] = "off"
    if not halves:
        auto_decision._or_halved = lambda chosen, _: chosen
    LinkProbe.result = lambda self, machine: (1.25e5, 1e-3)
    chooser.StepClock = clock
    chooser.WATCHED, chooser.MEASURED = watched, FEW
    codec_figures.rounds_of = lambda trial: ROUNDS


def slow_link(model, tier, watched=20, clock=GivenTimes, halves=False, **given):
    """A hook on such a link."""
    believe_in_a_slow_link(watched, clock, halves)
    return deltawire.torch.register(model, "auto", tier=tier, **given)


def on_loopback(rank, world_size, report):
    os.environ["DELTAWIRE_SHARED_MEMORY"] = "off"
    LinkProbe.result = lambda self, machine: (1e10, 1e-5)  # on busy cores it may look slow
    model, plain = wrapped(Net()), wrapped(Net())
    hook = deltawire.torch.register(model, "auto", tier="lossless")
    before = str(hook.explain()), hook.metrics()
    equal = True
    for step in range(measured("lossless", is_slow=False) + 3):
        train_step(model, rank, step)
        train_step(plain, rank, step)
        equal = equal and fingerprint(model) == fingerprint(plain)
    assert not hook._chooser.is_timed, (
        "native steps cost no call of Python more than torch's own hook"
    )
    metrics, explained = hook.metrics(), str(hook.explain())
    state = hook.state_dict()
    hook.load_state_dict(state)
    train_step(model, rank, 0)
    hook.close()
    return equal, metrics, explained, before, hook.last_error


def test_on_loopback_it_stays_native_and_exact():
    for equal, metrics, explained, (table, before), error in results(on_loopback, 2):
        assert error is None and equal
        assert "no plan was made yet" in table and before["predicted_ms"] is None
        assert (metrics["choice"], metrics["phase"], metrics["plans"]) == ("native", "native", 1)
        assert metrics["native_ms"] > 0 and metrics["predicted_ms"] > 0
        assert "do not compress" in explained and "direct(zstd" in explained


def on_one_machine(rank, world_size, report):
    chooser.StepClock, chooser.MEASURED = GivenTimes, FEW
    codec_figures.rounds_of = lambda trial: ROUNDS
    model, plain = wrapped(Net()), wrapped(Net())
    hook = deltawire.torch.register(model, "auto")
    for step in range(measured() + TRIED + 2):
        train_step(model, rank, step)
        train_step(plain, rank, step)
    metrics, explained = hook.metrics(), str(hook.explain())
    hook.close()
    return metrics["choice"], metrics["phase"], explained, fingerprint(model) == fingerprint(plain)


def test_values_in_shared_memory_are_tried_beside_the_native_all_reduce():
    for *chosen, explained, equal in results(on_one_machine, 2):
        assert chosen == ["direct(fp32)", "compressing"] and "share memory" in explained
        assert equal, "two ranks' mean has the bits of the native one"


def as_it_is(rank, world_size, report):
    """Nothing is given here: what is decided is what the measured figures say, in whatever state
    the machine is."""
    heard = []
    for name in ("choose", "judge"):
        native = getattr(auto_decision, name)

        def listen(*given, native=native, name=name):
            decision = native(*given)
            heard.append((name, given, decision))
            return decision

        setattr(auto_decision, name, listen)
    model = wrapped(Mixed())
    hook = deltawire.torch.register(model, "auto", tier="lossy", min_elements=0)
    step = 0
    while hook.metrics()["phase"] not in ("native", "compressing") and step < 400:
        train_of_any_dtype(model, rank, step)
        step += 1
    metrics = hook.metrics()
    hook.close()
    return metrics["choice"], metrics["native_ms"], fingerprint(model), heard


def test_on_a_measured_loopback_it_does_what_its_figures_say():
    ranks = results(as_it_is, 2)
    assert len({(choice, print_) for choice, _, print_, _ in ranks}) == 1
    choice, _, _, heard = ranks[0]
    assert not ranks[1][3], "rank 0 alone decides"
    name, given, planned = next(each for each in heard if each[0] == "choose" and each[2])
    assert auto_decision.choose(*given) == planned, "the same figures, the same decision"
    assert planned.native_bits == pytest.approx(8 * (4 + 2 + 2) / 3)
    assert {row["codec"] for row in planned.rows} >= {"direct(bf16)", "direct(int8)"}
    best = min(row["predicted_ms"] for row in planned.rows)
    if planned.by_bucket:
        assert planned.predicted_ms < best
        best = planned.predicted_ms
    share = best / min(planned.plain_ms, planned.native_ms)
    assert (share <= 0.97) == (planned.spec is not None)
    if planned.spec is None:
        assert choice == "native" and planned.reason.startswith("do not compress")
        return
    name, (_, said), judged = heard[-1]
    assert name == "judge" and choice == (judged.spec or "native")
    coded = auto_decision.steps_of(said)
    native = auto_decision.steps_of([each["native"] for each in said])
    noise = 2 * (coded.error**2 + native.error**2) ** 0.5
    assert (choice != "native") == (coded.end + noise < native.end)


class Wide(torch.nn.Module):
    """Layers that are cut among the ranks: no owner has more than its share."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 400), torch.nn.Tanh(), torch.nn.Linear(400, WIDTH)
        )

    def forward(self, x):
        return self.layers(x.to(self.layers[0].weight.dtype))


def choose(rank, world_size, report, tier, dtype):
    lines = logged()
    staged = tier == "lossy"  # as a device's buckets are
    os.environ["DELTAWIRE_FORCE_STAGING"] = "on" if staged else "off"
    hook = slow_link(model := wrapped(Wide().to(dtype)), tier)
    specs = []
    for step in range(measured(tier, str(dtype).removeprefix("torch.")) + TRIED + 3):
        train_of_any_dtype(model, rank, step, 0.05)
        specs.append(hook.spec)
        if step == 1:
            assert "deltawire/native_ms" not in hook.scalars(per_bucket=True)
    metrics, table = hook.metrics(), hook.explain()
    assert all((each > 0) == staged for each in hook._measuring._copies)
    numbers = hook.scalars(per_bucket=True)
    assert numbers["deltawire/predicted_ms"] == metrics["predicted_ms"]
    assert numbers["deltawire/bucket_0/bytes_sent"] == hook.buckets()[0]["bytes_sent"] > 0
    assert hook.group is model.process_group
    assert len(deltawire.torch.AllRanks(hook).state_dict()["ranks"]) == world_size
    with tempfile.TemporaryDirectory() as folder:
        assert deltawire.torch.timeline(hook, f"{folder}/{rank}.json").name == f"{rank}.json"
    hook.summary_every = 1
    train_of_any_dtype(model, rank, step + 1, 0.05)
    hook.close()
    return specs, metrics, str(table), table.to_dict(), lines, fingerprint(model)


@pytest.mark.parametrize(
    ("tier", "dtype"), [*((tier, torch.float32) for tier in TIERS), ("lossless", torch.bfloat16)]
)
def test_a_slow_link_is_compressed_within_the_tier(tier, dtype):
    ranks = results(choose, 3, tier, dtype)
    assert len({tuple(specs) for specs, *_ in ranks}) == 1
    assert len({mark for *_, mark in ranks}) == 1
    specs, metrics, text, table, lines, _ = ranks[0]
    begins = measured(tier, str(dtype).removeprefix("torch."))
    assert set(specs[:begins]) == {"native"} and specs[begins] == specs[-1] != "native"
    rows = {row["codec"]: row for row in table["decision"]["rows"]}
    assert TIERS.index(rows[specs[-1]]["tier"]) <= TIERS.index(tier)
    if dtype == torch.bfloat16:
        assert specs[-1].startswith("ring(gcomp:") and "lossless=on" in specs[-1]
        assert rows[specs[-1]]["bits_per_value"] < 11.5, "12 if they were float32"
        assert table["decision"]["native_bits"] == 16
    else:
        assert (tier == "near-lossless") == (specs[-1] == "direct(bf16)")
    assert metrics["phase"] == "compressing" and metrics["bytes_sent"] > 0
    assert metrics["predicted_ms"] < 0.97 * metrics["native_ms"] and metrics["native_ms"] == 3000
    assert metrics["measured_ms"] == 400
    assert f"{specs[-1]} *" in text and "layers.0.weight" in text
    choice, summary = lines
    assert specs[-1] in choice and f"tier {tier}" in choice and summary.startswith("step ")
    assert not ranks[1][4], "rank 0 alone says so"


def halve(rank, world_size, report):
    """Steps with halves in the native all-reduce: a choice that is made, saved and loaded."""
    hook = slow_link(model := wrapped(Net()), "near-lossless", halves=True)
    for step in range(measured() + TRIED + 3):
        train_step(model, rank, step)
    plain = wrapped(copy.deepcopy(model.module))
    for each in (model, plain):
        backward(each, rank, step)
    gradients = [
        torch.cat([parameter.grad.flatten() for parameter in each.parameters()]).tolist()
        for each in (model, plain)
    ]
    tried, text = hook.metrics(), str(hook.explain())
    hook.load_state_dict(hook.state_dict())
    train_step(model, rank, 0)
    said = hook.spec, hook.metrics()["phase"], hook.last_error, fingerprint(model)
    hook.close()
    return said, tried, text, gradients


def test_a_slow_link_gets_halves_in_the_native_all_reduce_where_no_codec_beats_them():
    first, second = results(halve, 2)
    assert first[0] == second[0] and first[3] == second[3]
    said, tried, text, gradients = first
    halved, exact = map(torch.tensor, gradients)
    assert said[:3] == ("native(bf16)", "compressing", None)
    assert tried["phase"] == "compressing" and tried["measured_ms"] == 400
    assert tried["predicted_ms"] < 0.6 * tried["native_ms"] and "native(bf16) *" in text
    assert torch.equal(halved, halved.bfloat16().float()) and not torch.equal(halved, exact)
    assert (halved - exact).norm() < exact.norm() / 128


class Sums:
    """Of all means of two models whose weights stay."""

    def __init__(self, *models):
        self.models, self.sums = models, [0.0, 0.0]

    def step(self, rank, step):
        for number, each in enumerate(self.models):
            backward(each, rank, step)
            flat = torch.cat([p.grad.reshape(-1).double() for p in each.parameters()])
            self.sums[number] = self.sums[number] + flat

    def apart(self):
        one, other = self.sums
        return float((one - other).norm() / other.norm())


def leave(rank, world_size, report, coded):
    """Sums of all means, of a model whose weights stay, with a choice that is left again; and of
    plain DDP."""
    GivenTimes.coded = coded
    sums = Sums(model := wrapped(Net()), wrapped(Net()))
    hook = slow_link(model, "lossy")
    phases = []
    for step in range(DECIDED + 5):
        sums.step(rank, step)
        phases.append(hook.metrics()["phase"])
        if step == DECIDED - 1:
            kept = sums.apart()
    lost = sums.apart()
    explained = str(hook.explain())
    hook.close()
    return phases, kept, lost, explained


def test_slower_than_native_it_goes_back_and_what_waited_arrives():
    for phases, kept, lost, explained in results(leave, 2, 3.5):
        assert phases[DECIDED - 1] == "trying" and phases[DECIDED] == "leaving"
        assert set(phases[DECIDED + 1 :]) == {"native"}
        assert "back to the native all-reduce" in explained
        assert kept > 1e-3, "nothing was left out: nothing is tested"
        assert lost < 1e-5


def link_changes(rank, world_size, report):
    hook = slow_link(model := wrapped(Net()), "lossy", watched=5)
    phases = []
    for step in range(DECIDED + 2 * MEASURE + 12):
        if step == DECIDED + 2:
            GivenTimes.coded = 0.01
            GivenTimes.native = 0.01
            LinkProbe.result = lambda self, machine: (1.25e9, 1e-5)
        train_step(model, rank, step)
        phases.append(hook.metrics()["phase"])
    metrics = hook.metrics()
    hook.close()
    return phases, metrics, fingerprint(model)


def test_another_link_is_planned_for_anew_on_all_ranks_at_one_step():
    first, second = results(link_changes, 2)
    assert first[0] == second[0] and first[2] == second[2]
    phases, metrics, _ = first
    order = [now for now, before in zip(phases, ["", *phases], strict=False) if now != before]
    assert order == ["measuring", "trying", "compressing", "leaving", "measuring", "native"]
    assert metrics["plans"] == 2 and metrics["choice"] == "native"


def restore(rank, world_size, report, folder):
    hook = slow_link(model := wrapped(Net()), "lossy")
    train_steps(model, rank, range(DECIDED + 2))
    saved, weights = hook.state_dict(), copy.deepcopy(model.module.state_dict())
    dcp.save({"hook": hook}, checkpoint_id=folder)
    ends = []
    train_steps(model, rank, range(4))
    ends.append(fingerprint(model))
    chosen = hook.spec
    hook.close()
    ways = (
        lambda hook: hook.load_state_dict(saved),
        lambda hook: dcp.load({"hook": hook}, checkpoint_id=folder),
        lambda hook: hook.load_state_dict(deltawire.torch.saved_states(folder)),
    )
    for load in ways:
        module = Net()
        module.load_state_dict(weights)
        hook = slow_link(model := wrapped(module), "lossy")
        load(hook)
        assert hook.spec == chosen and hook.metrics()["phase"] == "compressing"
        train_steps(model, rank, range(4))
        ends.append(fingerprint(model))
        hook.close()
    return ends


def test_a_saved_choice_goes_on_bit_for_bit_without_measuring(tmp_path):
    for ends in results(restore, 2, str(tmp_path / "saved")):
        assert len(ends) == 4 and len(set(ends)) == 1


def refuse(rank, world_size, report):
    said = []

    def tried(action):
        said.append(attempted(action))

    def register(model, spec="auto", **options):
        return deltawire.torch.register(model, spec, **options)

    net = wrapped(Net())
    of_another = torch.optim.SGD(Net().parameters(), 0.1)
    tried(lambda: register(net, optimizer=of_another))
    tried(lambda: register(net, link=deltawire.LinkShape(1e6)))
    tried(lambda: register(net, revert="fold"))
    tried(lambda: register(net, tier="lossles"))
    tried(lambda: register(net, "3lc", tier="lossy"))
    tried(lambda: register(net, tier=TIERS[rank]))
    os.environ["DELTAWIRE_FORCE_STAGING"] = "on" if rank else "off"
    tried(lambda: register(net))
    del os.environ["DELTAWIRE_FORCE_STAGING"]
    tried(lambda: register(net, "auto" if rank else "3lc"))
    tried(lambda: register(wrapped(torch.nn.Embedding(300, 4, sparse=True))))
    tried(lambda: deltawire.torch.explain(Net(), "auto"))
    tried(lambda: register(net, "auto:wait=5%"))
    hook = register(net)
    other = register(wrapped(Net()), "3lc")
    tried(lambda: hook.load_state_dict(other.state_dict()))
    tried(
        lambda: hook.load_state_dict(
            {**hook.state_dict(), "auto": '{"phase": "napping", "decision": null}'}
        )
    )
    tried(lambda: other.load_state_dict(hook.state_dict()))
    twin = copy.deepcopy(net)
    tried(lambda: train_step(twin, rank, 0))
    with torch.no_grad():
        twin(batch(rank, 0)[0])
    register(twin).close()
    train_step(net, rank, 0)
    hook.close()
    other.close()
    return said, len(twin._forward_pre_hooks)


def test_what_it_refuses_says_what_to_do():
    words = [
        ("optimizer=SGD holds none", "pass the optimizer that steps this model"),
        ("link=", "leave it out"),
        ('revert="fold"', "leave it out"),
        ("tier='lossles' is unknown", "'near-lossless'"),
        ("tier=", "leave it out"),
        ("tier=lossless", "tier=near-lossless"),
        ("staged=False", "staged=True"),
        ("auto", "3lc"),
        ("sparse", "name a codec"),
        ("explain", "deltawire plan"),
        ("auto:wait=5%", "no parameters"),
        ("no choice of", "register the model with that one"),
        ("damaged", "phase"),
        ("spec", "native"),
        ("copy", "register the copied model again"),
    ]
    for said, left in results(refuse, 2):
        assert left == 1
        assert len(said) == len(words)
        for caught, expected in zip(said, words, strict=True):
            assert caught is not None, expected
            assert all(word in caught[1] for word in expected), (caught, expected)


def in_other_ways(rank, world_size, report):
    """Micro-batches, and parameters that a step may leave out; both with an evaluation between."""
    ends = []
    for options, sometimes in (({}, False), ({"find_unused_parameters": True}, True)):
        GivenTimes.native = 3.0
        hook = slow_link(model := wrapped(Net(sometimes), **options), "near-lossless")
        for step in range(measured() + TRIED + 4):
            if not sometimes:
                with model.no_sync():
                    model(batch(rank, step)[0]).sum().backward()
            train_step(model, rank, step)
            with torch.no_grad():
                model(batch(rank, step)[0])
        ends.append((hook.spec, hook.metrics()["phase"], fingerprint(model), hook.last_error))
        hook.close()
    return ends


def test_accumulation_unused_parameters_and_evaluation():
    first, second = results(in_other_ways, 2)
    assert first == second
    for spec, phase, _, error in first:
        assert (spec, phase, error) == ("direct(bf16)", "compressing", None)
