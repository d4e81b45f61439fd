"""register(model, "auto") and the optimizer: a codec that does not suit it gets its rule, or is no
candidate."""

import torch
from deltawire.torch.auto import codec_figures
from models import Net, backward, fingerprint, steps_by, wrapped
from ranks import results
from test_auto import TRIED, measured, slow_link


def squares_of(optimizer):
    return [each["exp_avg_sq"].clone() for each in optimizer.state.values()]


def factored(before, gradient):
    """The second moment that follows this one of a matrix."""
    of_lines = (
        0.999 * before.mean(dim, keepdim=True) + 0.001 * gradient.square().mean(dim, keepdim=True)
        for dim in (1, 0)
    )
    rows, columns = of_lines
    return rows * columns / rows.mean()


def train(rank, world_size, report, is_given):
    """AdamW with a choice of 3lc alone: what the hook says, the second moments of two steps while
    compressed and native ones alternate, and the weights."""
    codec_figures.CANDIDATES.update({"near-lossless": (), "lossy": ("3lc",)})
    model = wrapped(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    given = {"optimizer": optimizer} if is_given else {}
    hook = slow_link(model, "lossy", **given)
    first, native = measured("lossy"), []
    for step in range(first + TRIED + 2):
        backward(model, rank, step)
        before = squares_of(optimizer)
        optimizer.step()
        if step in (first + 1, first + 3):  # after a compressed one each
            weight = model.module.layers[0][0].weight
            expected = factored(before[0], weight.grad)
            native.append(torch.allclose(squares_of(optimizer)[0], expected, rtol=1e-4, atol=0))
    spec, table, phase = hook.spec, str(hook.explain()), hook.metrics()["phase"]
    hook.close()
    assert not optimizer._optimizer_step_pre_hooks, "close() leaves it as it was"
    return spec, table, phase, native, fingerprint(model)


def check_rule(ranks, is_given):
    assert len({end for *_, end in ranks}) == 1, "replicas differ"
    for spec, table, phase, native, _ in ranks:
        assert phase == "compressing"
        assert "pull=0.5" in spec, "means as fine as the rule needs them"
        assert "beta1 0.5; factored second moment" in table
        if is_given:  # else its second moment waits for the next exact squares
            assert native == [True, True], "a native step knows no mean squares of an earlier one"


def test_3lc_gets_the_rule_of_the_adam_that_was_given():
    check_rule(results(train, 2, True), True)


def test_3lc_gets_the_rule_of_the_adam_that_steps_the_model():
    check_rule(results(train, 2, False), False)


def left_out(rank, world_size, report):
    """By an optimizer that has no rule for 3lc, and one that can't be stepped by it."""
    codec_figures.CANDIDATES.update({"near-lossless": (), "lossy": ("3lc",)})
    tables = []
    for make in (
        lambda p: torch.optim.RMSprop(p, lr=1e-4),
        lambda p: torch.optim.AdamW(p, lr=1e-4, amsgrad=True),
    ):
        model = wrapped(Net())
        optimizer = make(model.parameters())
        hook = slow_link(model, "lossy", optimizer=optimizer)
        steps_by(optimizer, model, rank, range(measured("lossy") + 2))
        tables.append((hook.spec, str(hook.explain())))
        hook.close()
    return tables


def test_3lc_is_no_candidate_where_its_rule_has_no_place():
    for (spec, table), (kept, other) in results(left_out, 2):
        assert "3lc" not in spec + kept
        assert "RMSprop's second moment takes them for large gradients" in table
        assert "AdamW has amsgrad=True" in other
        assert "direct(3lc" not in table + other, "it has no row"
