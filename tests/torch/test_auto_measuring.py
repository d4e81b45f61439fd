"""What `auto` measures before a plan: a piece a step, on all ranks at once."""

import deltawire
import deltawire.torch
import pytest
import torch
from deltawire.torch.auto import codec_figures
from deltawire.torch.auto.measuring import Measuring
from models import Net, batch, train_step, train_steps, wrapped
from ranks import results
from refusals import raised
from test_auto import measured


def count_pieces(rank, world_size, report):
    """In each step's forward pass, how many rounds of codecs and messages of size there were."""
    pieces, advance = [], Measuring.advance

    def counted(measuring, steps):
        pieces[-1] += 1
        return advance(measuring, steps)

    Measuring.advance = counted
    hook = deltawire.torch.register(model := wrapped(Net()), "auto")
    plans = []
    for step in range(measured(is_slow=False) + 2):
        pieces.append(0)
        train_step(model, rank, step)
        plans.append(hook.metrics()["plans"])
    hook.close()
    return pieces, plans


def test_no_step_waits_for_more_than_a_piece():
    for pieces, plans in results(count_pieces, 2):
        assert max(pieces) == 1 and sum(pieces) > 20
        assert plans[measured(is_slow=False) - 1] == 0 and plans[measured(is_slow=False)] == 1


def figures_of(specs, drawn):
    trials = codec_figures.Trials(specs, {"a": drawn}, 256)
    assert codec_figures.Trials(specs, {}, 256).rounds == trials.rounds
    for _ in range(trials.rounds):
        trials.advance()
    return trials.results()


def test_a_codec_that_takes_no_infinity_is_left_out():
    specs = ["3lc", "bf16", "gather(zstd)"]
    drawn = torch.randn(5000, generator=torch.Generator().manual_seed(1))
    figures, refused = figures_of(specs, drawn)
    assert [each["pattern"] for each in figures] == ["direct", "direct", "gather"] and not refused
    drawn[7] = float("inf")
    figures, refused = figures_of(specs, drawn)
    assert len(figures) + len(refused) == 3 and refused[0].startswith("3lc: ")


def fail_to_measure(rank, world_size, report, options):
    if rank == 1:

        def broken(*_):
            raise ArithmeticError("planted")

        codec_figures.Trials.advance = broken
    hook = deltawire.torch.register(model := wrapped(Net(), **options), "auto")
    train_steps(model, rank, range(measured(is_slow=False)))
    caught = raised(deltawire.DeltawireError, train_step, model, rank, measured(is_slow=False))
    again = raised(deltawire.DeltawireError, model, batch(rank, 0)[0])
    hook.close()
    return str(caught), str(again), str(hook.last_error)


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}])
def test_what_fails_on_one_rank_all_hear_of(options):
    for said, again, kept in results(fail_to_measure, 2, options):
        assert said == again == kept and "rank 1" in said and "planted" in said
