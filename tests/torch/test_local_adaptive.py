"""What "auto" of LocalSteps decides, from windows made up here."""

import dataclasses
import json
import math

import pytest
from deltawire.torch.local import adaptive
from deltawire.torch.local.adaptive import MOST_WAITING, Choice, Plan, Window, decide, window_of

STEPS = 10
PLAN = Plan(STEPS)
QUICK, SLOW = 0.001, 1.0  # seconds that a round waits; its steps take 0.1 in all at first


def seen(exchange: float = QUICK, loss: float | None = None, waiting: float | None = 1.0) -> Window:
    told = {} if loss is None else {"losses": 100, "loss": loss, "variance": 0.01}
    return Window(0.01, exchange, waiting, **told)


def after(*windows: Window, plan: Plan = PLAN) -> Plan:
    for window in windows:
        plan = decide(plan, window)
    return plan


def test_a_quick_link_changes_nothing():
    plan = after(*[seen()] * 5)
    assert plan.choice == Choice() and plan.changes == 0
    assert plan.round_steps == STEPS and "waited 0.99 %" in plan.reason


def test_a_decision_is_soon_checked():
    """After one round at the start and after each change, then after some."""
    assert PLAN.rounds == 1 and after(seen(SLOW)).rounds == 1
    assert after(seen()).rounds == adaptive.WINDOW
    assert after(seen(SLOW), seen(0.005)).rounds == adaptive.WINDOW
    assert after(*[seen(100.0)] * 12).rounds == adaptive.WINDOW, "nothing thinner is left"


def test_a_slow_link_takes_fewer_elements_and_then_longer_rounds():
    exchanges, plan, choices = 4.0, PLAN, []
    while len(choices) < 12:
        taken = exchanges * adaptive.SHARES[plan.choice.level] / adaptive.SHARES[0]
        plan = decide(plan, seen(taken))
        choices.append(plan.choice)
    thinned = [Choice(1), Choice(2), Choice(3), Choice(3, 2), Choice(3, 4), Choice(3, 8)]
    assert choices[:6] == thinned and set(choices[6:]) == {Choice(3, 16)}
    taken = exchanges * adaptive.SHARES[3] / adaptive.SHARES[0]
    assert seen(taken).waited(16 * STEPS) < adaptive.WAITED, "so it has no reason to go on"
    assert "nothing thinner" in after(*[seen(100.0)] * 12).reason


def test_where_latency_takes_the_time_rounds_get_longer():
    """The first fewer elements hardly shorten the exchange: 0.07 of p take 0.1 s."""
    plan = after(seen(SLOW), seen(0.9 * SLOW), seen(0.9 * SLOW))
    assert plan.fixed == pytest.approx(0.9 - 0.03 * 0.1 / 0.07) and plan.choice == Choice(1, 4)
    assert after(seen(SLOW), seen(0.3 * SLOW)).fixed == pytest.approx(0, abs=1e-9)
    assert after(seen(SLOW), seen(2 * SLOW)).fixed == 2 * SLOW, "not more than all of it"


def test_back_where_the_loss_rises_and_not_again_soon():
    plan = after(seen(SLOW, 2.0), seen(0.3 * SLOW, 2.5))
    assert plan.choice == Choice() and plan.reason == "the loss rose from 2 to 2.5"
    assert plan.refused == ((Choice(1), adaptive.LEAST_PATIENCE),)
    plan = decide(plan, seen(SLOW, 2.0))
    assert plan.choice == Choice(0, 2), "fewer elements were refused"
    assert decide(plan, seen(SLOW, 2.6)).patience == 4 * adaptive.LEAST_PATIENCE
    for _ in range(adaptive.LEAST_PATIENCE):
        plan = decide(plan, seen(0.02, 1.9))
    assert not plan.refused, "it may be tried again"
    assert decide(plan, seen(SLOW, 1.9)).choice == Choice(1, 2)


def test_the_loss_must_rise_beyond_its_noise():
    """Means of 100 losses with a variance of 0.01 are 0.014 apart by chance."""
    assert after(seen(SLOW, 2.0), seen(SLOW, 2.02)).choice == Choice(1, 2)
    assert after(seen(SLOW, 2.0), seen(SLOW, 2.03)).choice == Choice()
    assert after(seen(SLOW, 2.0), seen(SLOW, math.nan)).choice == Choice()


def test_without_losses_what_waits_decides():
    much = seen(SLOW, waiting=MOST_WAITING + 1)
    plan = after(seen(SLOW), much)
    assert plan.choice == Choice() and plan.reason == "17 rounds' messages wait, more than 16"
    assert after(much).reason.endswith("nothing milder is left") and after(much).changes == 0
    assert after(seen(SLOW), seen(SLOW, 2.0, MOST_WAITING + 1)).changes == 2, "the loss decides"
    assert after(seen(SLOW), seen(SLOW, waiting=None)).choice == Choice(1, 2)


def test_a_link_that_gets_quicker_is_used():
    plan = after(seen(SLOW), seen(QUICK / 3))
    assert plan.choice == Choice() and plan.path == () and "time for more" in plan.reason
    assert after(seen(SLOW), seen(0.0024)).choice == Choice(1), "it would wait more than the half"


def test_a_link_that_was_not_quick_enough_is_not_tried_again_soon():
    quick, slow = seen(QUICK / 3), seen(SLOW)
    plan = after(slow, quick, slow)
    assert plan.choice == Choice(1) and plan.rest == adaptive.LEAST_PATIENCE
    waits = after(*[quick] * (adaptive.LEAST_PATIENCE - 1), plan=plan)
    assert waits.choice == Choice(1) and decide(waits, quick).choice == Choice()
    assert after(quick, slow, plan=waits).rest == 2 * adaptive.LEAST_PATIENCE


def test_the_share_stays_where_it_may_not_change():
    plan = decide(PLAN, seen(SLOW), may_change_share=False)
    assert plan.choice == Choice(0, 2)
    thinner = after(seen(SLOW))
    assert decide(thinner, seen(QUICK / 3), may_change_share=False).choice == Choice(1)
    much = decide(thinner, seen(SLOW, waiting=99.0), may_change_share=False)
    assert much.choice == Choice(1) and "nothing milder" in much.reason


def test_the_ranks_reports_are_one_window():
    """The slowest step, the shortest wait, most that waits, and the losses of all."""
    own = [seen(0.5, 2.0), dataclasses.replace(seen(0.2, 3.0, 4.0), step=0.03, losses=300)]
    both = window_of([dataclasses.asdict(each) for each in own])
    assert (both.step, both.exchange, both.waiting, both.losses) == (0.03, 0.2, 4.0, 400)
    assert both.loss == pytest.approx(2.75) and both.variance == pytest.approx(0.01)
    with pytest.raises(ValueError, match="rank 1 gave no loss"):
        window_of([dataclasses.asdict(each) for each in (seen(loss=2.0), seen())])
    idle = dataclasses.replace(seen(), step=0.0)  # its data has ended
    assert window_of([dataclasses.asdict(each) for each in (seen(loss=2.0), idle)]).loss == 2.0
    assert window_of([dataclasses.asdict(seen(waiting=None))]).waiting is None


def test_a_plan_survives_json():
    plan = after(seen(SLOW, 2.0), seen(SLOW, 2.5), seen(SLOW, 2.0))
    told = json.loads(json.dumps(plan.as_dict()))
    assert adaptive.plan_of(told) == plan
    for damaged in ({}, {**told, "choice": {"level": 9, "times": 1}}, {**told, "path": 3}):
        with pytest.raises(ValueError, match="no plan|no choice"):
            adaptive.plan_of(damaged)
