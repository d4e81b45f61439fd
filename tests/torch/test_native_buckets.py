"""register(model, codec, native_below=): some buckets by the process group's own all-reduce, in the
same step as coded ones. What fails: test_native_failures.py."""

import contextlib
import copy
import json

import deltawire.torch
import pytest
import torch
from models import backward, batch, fingerprint, train_step
from ranks import attempted, refusals, results
from sharded import Uneven, cut, mesh_of, needs_fsdp2
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from words import Words
from words import run as run_words

BELOW = 15_000
STEPS = 4


class Sizes(nn.Module):
    """Layers whose gradients take about 12 and 16 KB: DDP makes buckets below and above `BELOW` of
    them, in the order native, coded, native, coded; with `native_end` native once more."""

    def __init__(self, native_end=False):
        super().__init__()
        torch.manual_seed(7)
        widths = [64, *([48] if native_end else []), 64, 48, 64, 64, 48, 64]
        pairs = zip(widths, widths[1:], strict=False)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairs))

    def forward(self, x):
        return self.layers(x)


def parted(module, **options):
    width = next(module.parameters()).element_size()
    return DistributedDataParallel(module, bucket_cap_mb=0.0025 * width, **options)


def accumulated(model, rank, number):
    """Two batches; only the second one's backward pass exchanges."""
    model.zero_grad()
    for part in range(2):
        x, y = batch(rank, 2 * number + part)
        with model.no_sync() if part == 0 else contextlib.nullcontext():
            (model(x) - y).square().mean().backward()


def of_16_bits(model, rank, number):
    x, y = batch(rank, number)
    model.zero_grad()
    (model(x.bfloat16()) - y.bfloat16()).square().mean().backward()


CASES = {
    "plain": (backward, {}),
    "find_unused": (backward, {"find_unused_parameters": True}),
    "static_graph": (backward, {"static_graph": True}),
    "view": (backward, {"gradient_as_bucket_view": True}),
    "no_sync": (accumulated, {}),
    "bfloat16": (of_16_bits, {}),
}


def compare(rank, world_size, report):
    """Of each case, with a native and with a coded last bucket, what travelled; the gradients of
    plain DDP everywhere."""
    seen = {}
    for native_end in (False, True):
        for case, (run, options) in CASES.items():
            net = Sizes(native_end).to(torch.bfloat16 if case == "bfloat16" else torch.float32)
            plain, hooked = (parted(copy.deepcopy(net), **options) for _ in range(2))
            below = BELOW // 2 if case == "bfloat16" else BELOW
            hook = deltawire.torch.register(hooked, "fp32", native_below=below)
            for number in range(STEPS):
                for model in (plain, hooked):
                    run(model, rank, number)
                for ours, theirs in zip(hooked.parameters(), plain.parameters(), strict=True):
                    assert torch.equal(ours.grad, theirs.grad), f"{case}, step {number}"
            records = hook.step_records
            rows = hook.explain().rows
            seen[case, native_end] = hook.buckets(), records, rows, hook.last_error
            hook.close()
    return seen


def test_gradients_are_plain_ddps_and_both_kinds_travel():
    first, second = results(compare, 2)
    for key, (buckets, records, rows, error) in first.items():
        assert error is None and len(records) == STEPS, key
        kinds = [bucket["native"] for bucket in buckets]
        assert True in kinds and False in kinds and kinds[-1] == key[1], f"{key}: {kinds}"
        assert [r["digest"] for r in records] == [r["digest"] for r in second[key][1]]
        assert len({r["digest"] for r in records}) == STEPS, "it says nothing of the means"
        width = 2 if key[0] == "bfloat16" else 4
        for bucket in buckets:
            small = bucket["elements"] * width < (BELOW // 2 if width == 2 else BELOW)
            assert bucket["native"] == small, key
            if bucket["native"]:  # 2 (N-1) / N of it, with two ranks all of it
                assert bucket["bytes_sent"] == bucket["raw_bytes"] == bucket["elements"] * width
        native = sum(bucket["bytes_sent"] for bucket in buckets if bucket["native"])
        assert records[-1]["native_bytes"] == native
        beside = records[-1]["bytes_sent"] - sum(bucket["bytes_sent"] for bucket in buckets)
        assert 0 < beside < 300, "the votes' messages"
        named = {name for bucket in buckets if bucket["native"] for name in bucket["tensors"]}
        assert {row.name for row in rows if row.codec == "native"} == named
        for row in rows:
            if row.name in named:
                assert row.bytes_sent == row.elements * width and row.residual_bytes == 0


def train_lossy(rank, world_size, report, path):
    """Sums of exact and of sent gradients, and what travelled."""
    plain, hooked = parted(Sizes()), parted(Sizes())
    hook = deltawire.torch.register(hooked, "3lc", native_below=BELOW)
    early, first, buckets = hook.explain(), {}, []
    sums = {name: [0.0, 0.0] for name, _ in plain.module.named_parameters()}
    for number in range(STEPS):
        for which, model in enumerate((plain, hooked)):
            backward(model, rank, number)
            if which == 1 and number == 0:
                first, buckets = hook.metrics(), hook.buckets()
            for name, parameter in model.module.named_parameters():
                sums[name][which] = sums[name][which] + parameter.grad.double()
    after = hook.explain()
    off = {name: (ours - exact).norm().item() for name, (exact, ours) in sums.items()}
    deltawire.torch.timeline(hook, path)
    norms = {row.name: row.residual_norm for row in after.rows}
    shown = hook.scalars(per_bucket=True)
    hook.close()
    return off, norms, str(early), str(after), shown, hook.metrics(), first, buckets


def test_native_tensors_are_exact_and_coded_ones_wait(tmp_path):
    path = tmp_path / "step.json"
    for rank in results(train_lossy, 3, path):
        off, norms, early, after, shown, metrics, first, buckets = rank
        assert "native" not in early and first["bytes_sent"] > 2 * 50_000, "the first is native"
        assert [bucket["native"] for bucket in buckets] == [True]
        native = {line.split()[0] for line in after.splitlines() if line.endswith("  native")}
        assert "2 (N-1) / N" in after and 0 < len(native) < len(off)
        for name, difference in off.items():
            if name in native:
                assert difference < 1e-6 and norms[name] == 0.0, name
        assert sum(norms.values()) > 0
        assert "deltawire/native_bytes" in shown and metrics["native_bytes"] > 0
        assert "deltawire/bucket_0/native" not in shown, "it is no quantity"
    events = json.loads(path.read_text())["traceEvents"]
    slices = [event for event in events if event["name"].startswith("bucket ")]
    assert {event["args"]["native"] for event in slices} == {True, False}
    native = [event for event in slices if event["args"]["native"]]
    assert all(event["dur"] > 0 for event in native)


def overflows(rank, world_size, report):
    """GradScaler's steps; in one of them a native bucket alone overflows, on rank 1."""
    model = parted(Sizes())
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    hook = deltawire.torch.register(model, "3lc", native_below=BELOW, scaler=scaler)
    skipped, states, ready = [], [], []
    last = model.module.layers[-1][0].bias  # of the first bucket
    last.register_hook(lambda gradient: gradient * (float("inf") if ready == [1] else 1.0))
    for number in range(5):
        before = fingerprint(model)
        x, y = batch(rank, number)
        optimizer.zero_grad()
        ready[:] = [rank] if number == 2 else []
        scaler.scale((model(x) - y).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        states.append(hook.state_dict()["residuals"][f"rank {rank}"][0].clone())
        if fingerprint(model) == before:
            skipped.append(number)
    assert hook.buckets()[0]["native"]
    records = hook.step_records
    hook.close()
    kept = [torch.equal(a, b) for a, b in zip(states, states[1:], strict=False)]
    return fingerprint(model), skipped, [record["finite"] for record in records], kept


def test_an_overflow_in_a_native_bucket_leaves_no_trace_in_coded_ones():
    first, second = results(overflows, 2)
    assert first == second
    _, skipped, finite, kept = first
    assert skipped == [2] and finite == [True, True, False, True, True]
    assert kept == [False, True, False, False], "residuals changed though the step was skipped"


def save_and_load(rank, world_size, report):
    """A run that is cut in two, and one that isn't; what is refused between."""
    whole, cut = (parted(Sizes()) for _ in range(2))
    hooks = [deltawire.torch.register(m, "3lc", native_below=BELOW) for m in (whole, cut)]
    for number in range(3):
        for model in (whole, cut):
            train_step(model, rank, number)
    state = hooks[1].state_dict()
    hooks[1].close()
    again = parted(copy.deepcopy(cut.module))
    hook = deltawire.torch.register(again, "3lc", native_below=BELOW)
    other = deltawire.torch.register(parted(Sizes()), "3lc", native_below=BELOW + 1)
    without = deltawire.torch.register(parted(Sizes()), "3lc")
    damaged = {**state, "native": '{"below": 15000, "coded": 3}'}
    lacking = {key: value for key, value in state.items() if key != "native"}
    errors = [
        attempted(lambda: other.load_state_dict(state)),
        attempted(lambda: without.load_state_dict(state)),
        attempted(lambda: hook.load_state_dict(damaged)),
        attempted(lambda: hook.load_state_dict(lacking)),
    ]
    hook.load_state_dict(state)
    # Had a codec kept something of a tensor that is now in a small bucket, it stays with the codec.
    everything = [name for name, _ in again.module.named_parameters()]
    held = copy.deepcopy(state) | {"native": json.dumps({"below": BELOW, "coded": everything})}
    for number in range(3, 5):
        train_step(again, rank, number)
    kinds = [bucket["native"] for bucket in hook.buckets()]
    hook.load_state_dict({**held, "steps": 5})
    train_step(again, rank, 5)
    held_kinds = [bucket["native"] for bucket in hook.buckets()]
    for each in (hooks[0], hook, other, without):
        each.close()
    return errors, json.loads(state["native"]), kinds, held_kinds


def test_states_say_which_tensors_stay_with_codecs():
    for errors, native, kinds, held in results(save_and_load, 2):
        assert native["below"] == BELOW and "layers.0.0.weight" in native["coded"]
        assert "layers.5.0.weight" not in native["coded"]
        assert "native_below=15000, but this hook has 15001" in errors[0][1]
        assert "native_below=15000, but this hook has None" in errors[1][1]
        assert "is damaged" in errors[2][1]
        assert "native_below=None, but this hook has 15000" in errors[3][1]
        assert True in kinds and True not in held


def joined(rank, world_size, report):
    """Rank 1 has more batches; where a rank has none left, DDP's join feeds zeros."""
    model = parted(Sizes())
    hook = deltawire.torch.register(model, "3lc", native_below=BELOW)
    with model.join():
        for number in range(3 + 2 * rank):
            train_step(model, rank, number)
    steps, error = hook.metrics()["steps"], hook.last_error
    hook.close()
    return fingerprint(model), steps, error


def test_join():
    first, second = results(joined, 2)
    assert first == second and first[1:] == (5, None)


def staged(rank, world_size, report):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DELTAWIRE_FORCE_STAGING", "1")
        straight, model = parted(Sizes()), parted(Sizes())
        hook = deltawire.torch.register(model, "3lc", native_below=BELOW)
        patched.delenv("DELTAWIRE_FORCE_STAGING")
        plain = deltawire.torch.register(straight, "3lc", native_below=BELOW)
        assert hook._staging._forced and not plain._staging._forced
    for number in range(STEPS):
        for each in (straight, model):
            train_step(each, rank, number)
    errors = hook.last_error, plain.last_error
    hook.close()
    plain.close()
    return fingerprint(model), fingerprint(straight), errors


def test_staged_buckets_beside_native_ones():
    first, second = results(staged, 2)
    assert first == second
    assert first[0] == first[1] and first[2] == (None, None)


def register_with(rank, world_size, report, settings):
    spec, options = settings[rank]
    if "link" in options:
        options = {**options, "link": deltawire.LinkShape(options["link"])}
    return attempted(lambda: deltawire.torch.register(parted(Sizes()), spec, **options))


@pytest.mark.parametrize(
    ("spec", "options", "says"),
    [
        ("3lc", {"native_below": 0}, "native_below=0 is not a number of bytes"),
        ("3lc", {"native_below": 1e6}, "native_below=1000000.0 is not a number of bytes"),
        ("topk:k=1% with momentum=0.9", {"native_below": 9}, "what stands before the codec"),
        ("3lc", {"native_below": 9, "link": 1e6}, "link= would slow"),
        ("3lc", {"native_below": 9, "revert": "fold"}, "keeps nothing of a failed step"),
        ("auto", {"native_below": 9}, '"auto" chooses'),
    ],
)
def test_what_native_buckets_do_not_go_with(spec, options, says):
    caught = refusals(register_with, (spec, options), (spec, options))
    assert len(set(caught)) == 1
    assert caught[0][0] == "InvalidArgumentError" and says in caught[0][1]


def test_another_ranks_threshold_is_named():
    usual = ("3lc", {"native_below": 9})
    caught = refusals(register_with, usual, ("3lc", {}), usual)
    assert len(set(caught)) == 1 and caught[0][2] == 1
    assert "native_below=9" in caught[0][1] and "native_below=None" in caught[0][1]


def register_sharded(rank, world_size, report):
    model = cut(Uneven(), mesh_of(2, 1))
    return attempted(lambda: deltawire.torch.register(model, "3lc", native_below=9))


@needs_fsdp2
def test_a_sharded_model_has_none():
    for kind, text, _ in results(register_sharded, 2):
        assert kind == "InvalidArgumentError"
        assert "native_below=9" in text and "leave it out" in text


def sparse(rank, world_size, report):
    model = DistributedDataParallel(Words(), find_unused_parameters=True)
    spec = "gather(*embedding*: fastsgd, rest fp32)"
    hook = deltawire.torch.register(model, spec, native_below=1_000_000)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    run_words(model, optimizer, 3)
    kinds = {bucket["tensors"]: bucket["native"] for bucket in hook.buckets()}
    error = hook.last_error
    hook.close()
    return kinds, error


def test_sparse_gradients_are_always_coded():
    for kinds, error in results(sparse, 2):
        assert error is None
        assert not kinds.pop(("embedding.weight",))
        assert kinds and all(kinds.values())
