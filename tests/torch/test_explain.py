"""explain(): which codec each tensor gets, what it took, and the table."""

import json
import os

import deltawire
import deltawire.torch
import pytest
import torch
from models import Net, steps_by, train_step, train_steps, wrapped
from ranks import results

RULES = (
    "{}(layers.0*: 3lc with momentum=0.9, "
    "dims>=2 step<3: int8, dims>=2 step>=3 step<8: bf16, rest fp32)"
)

ELEMENTS = sum(p.numel() for p in Net().parameters())


def canonical(codec):
    return deltawire.canonical_spec(f"direct({codec})")[len("direct(") : -1]


def test_before_a_model_is_registered():
    network = Net()
    network.layers[5][0].weight.requires_grad_(False)
    table = deltawire.torch.explain(
        network, "ring(layers.0*: onebit, dims=2 step<8: int8, rest bf16)", min_elements=100, step=2
    )
    assert [row.name for row in table.rows] == [
        name for name, parameter in network.named_parameters() if parameter.requires_grad
    ]
    first, bias, second = table.rows[:3]
    assert (
        first.codec == canonical("onebit") and first.changes_at is None and first.next_codec is None
    )
    assert (
        bias.raw and bias.codec == "fp32" and bias.most_bytes == 4 * 64 and bias.times_smaller == 1
    )
    assert second.codec == canonical("int8") and not second.raw
    assert (second.changes_at, second.next_codec) == (8, "bf16")
    assert second.shape == (64, 64) and second.elements == 4096
    assert 4096 <= second.most_bytes < 4200 and 3.9 < second.times_smaller <= 4
    assert second.bytes_sent is None and table.other_bytes is None
    assert (table.pattern, table.step, table.world_size) == ("ring", 2, None)
    assert table.total.elements == ELEMENTS - 4096
    assert table.total.most_bytes == sum(row.most_bytes for row in table.rows)
    text = str(table)
    assert text.startswith("ring: the codecs of step 2, nothing was sent yet\n")
    assert "from step 8 on bf16" in text and "fp32 (raw)" in text and "at most" in text


def test_a_shared_parameter_stands_once_and_views_are_flat():
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    network[1].weight = network[0].weight
    network[0].bias = torch.nn.Parameter(torch.randn(4, 2).t())
    rows = deltawire.torch.explain(network, "3lc", min_elements=0).rows
    assert [(row.name, row.shape) for row in rows] == [
        ("0.weight", (8, 8)),
        ("0.bias", (8,)),
        ("1.bias", (8,)),
    ]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: deltawire.torch.explain(3, "fp32"), TypeError, "not int"),
        (lambda: deltawire.torch.explain(Net().double(), "fp32"), TypeError, "float64"),
        (lambda: deltawire.torch.explain(Net(), "fp23"), ValueError, "no codec is named"),
        (lambda: deltawire.torch.explain(Net(), "fp32", step=-1), ValueError, "step=-1"),
        (lambda: deltawire.torch.explain(Net(), "fp32", min_elements=-1), ValueError, "min_elem"),
    ],
)
def test_what_can_not_be_explained(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def of_a_hook(rank, world_size, report, pattern):
    hook = deltawire.torch.register(model := wrapped(Net()), RULES.format(pattern))
    before = hook.explain()
    train_steps(model, rank, range(3))
    after, metrics = hook.explain(), hook.metrics()
    copied = hook.state_dict()
    hook.load_state_dict(copied)
    loaded = hook.explain()
    record = hook.step_records[-1]
    hook.close()
    closed = hook.explain()
    assert closed.total.bytes_sent is None  # it was loaded
    return before, after, loaded, record, metrics["residual_bytes"]


@pytest.mark.parametrize("pattern", ["direct", "gather"])
def test_of_a_hook(pattern):
    for before, after, loaded, record, residual_bytes in results(of_a_hook, 3, pattern):
        assert before.step == 0 and before.total.bytes_sent is None
        assert [row.name for row in before.rows] == [name for name, _ in Net().named_parameters()]
        weights = [row for row in after.rows if len(row.shape) == 2]
        assert weights[0].codec.startswith("3lc") and weights[0].codec.endswith("momentum=0.9")
        assert {row.codec for row in weights[1:]} == {"bf16"}  # from the step to come on
        assert {row.codec for row in before.rows if len(row.shape) == 2} == {
            weights[0].codec,
            canonical("int8"),
        }
        total = after.total
        assert total.raw_bytes == record["raw_bytes"]
        assert total.bytes_sent + after.other_bytes == record["bytes_sent"]
        assert 0 < after.other_bytes < 3000
        assert total.residual_bytes + total.momentum_bytes == residual_bytes
        assert weights[0].residual_bytes >= 4 * 4096 and weights[0].momentum_bytes >= 4 * 4096
        assert weights[1].times_smaller == 4, "int8 was sent last"
        assert total.times_smaller == total.raw_bytes / total.bytes_sent
        assert after.world_size == 3 and after.step == 3
        assert loaded.total.bytes_sent is None and loaded.total.residual_bytes == 0
        check_text(after)
        check_dict(after)


def check_text(table):
    assert repr(table) == str(table), "an interactive session shows the table"
    lines = str(table).splitlines()
    assert lines[0] == f"{table.pattern}, 3 ranks: the codecs of step 3, and what the last one took"
    body = lines[1 : lines.index("")]
    assert len(body) == 1 + len(table.rows) + 2
    heads = "tensor shape elements bytes smaller residual momentum codec"
    assert body[0].split() == heads.split()
    for line in body[1:]:  # right ends of numbers stand below each other
        assert line[: body[0].index("elements") + len("elements")][-1:].strip() or line.startswith(
            "other"
        )
    assert f"{table.other_bytes:,}" in body[-1] and body[-1].startswith("other")
    assert f"{table.total.bytes_sent:,}" in body[-2] and body[-2].startswith("together")
    assert "; from step 8 on fp32" in body[3]
    assert "momentum before" not in lines[0] and any(line.startswith("momentum:") for line in lines)


def check_dict(table):
    made = json.loads(json.dumps(table.to_dict()))
    assert made["rows"][0]["name"] == "layers.0.0.weight" and made["pattern"] == table.pattern
    assert made["rows"][2]["times_smaller"] == table.rows[2].times_smaller
    assert made["total"]["bytes_sent"] == table.total.bytes_sent
    assert made["spec"] == table.spec and made["other_bytes"] == table.other_bytes


def over(rank, world_size, report, sockets, streams="auto"):
    os.environ["DELTAWIRE_LOCAL_SOCKETS"] = sockets
    os.environ["DELTAWIRE_STREAMS"] = streams
    hook = deltawire.torch.register(wrapped(Net()), "3lc")
    table = hook.explain()
    hook.close()
    assert hook.explain().lines == ()
    return table


def test_lines_say_what_the_kernel_gave():
    for rank, table in enumerate(results(over, 2, "off")):
        seconds, control, streams = table.lines[1 - rank]
        assert 0 < seconds < 60 and control and streams == 1
        assert table.lines[rank] == (0, "", 1)
        assert f"lines: {control} to ranks {1 - rank}, {1e3 * seconds:.3g} ms" in str(table)
        assert table.to_dict()["lines"][1 - rank] == [seconds, control, streams]
    for rank, table in enumerate(results(over, 2, "off", "3")):
        assert table.lines[1 - rank][2] == 3
        assert "ms there and back, 3 streams each." in str(table)
    for table in results(over, 2, "on", "3"):
        assert table.lines == ((0, "", 1), (0, "", 1)) and "lines:" not in str(table)


def of_a_trainer(rank, world_size, report):
    network = Net()
    optimizer = torch.optim.SGD(network.parameters(), 0.05)
    trainer = deltawire.torch.LocalSteps(network, optimizer, steps=2, reducer="sbc")
    steps_by(trainer, network, rank, range(4))
    table, record = trainer.explain(), trainer.step_records[-1]
    trainer.close()
    return table, record


def test_of_local_steps():
    for table, record in results(of_a_trainer, 2):
        assert table.step == 2 and table.pattern == "gather"
        assert table.total.bytes_sent + table.other_bytes == record["bytes_sent"]
        assert table.rows[0].times_smaller > 50


def of_a_ring(rank, world_size, report):
    hook = deltawire.torch.register(model := wrapped(Net()), "ring(bf16)")
    train_step(model, rank, 0)
    table, record = hook.explain(), hook.step_records[-1]
    hook.close()
    return table, record


def test_a_ring_passes_on_what_is_in_no_row():
    for table, record in results(of_a_ring, 3):
        assert table.total.bytes_sent + table.other_bytes == record["bytes_sent"]
        assert table.other_bytes > table.total.bytes_sent / 4
        assert table.total.raw_bytes < record["raw_bytes"]
        assert "passes on for others" in str(table)


def of_a_copy(rank, world_size, report):
    import copy

    hook = deltawire.torch.register(wrapped(Net()), "3lc")
    try:
        with pytest.raises(deltawire.DeltawireError, match="copy of a registered model"):
            copy.deepcopy(hook).explain()
    finally:
        hook.close()


def test_a_copied_hook_has_nothing_to_explain():
    results(of_a_copy, 2)
