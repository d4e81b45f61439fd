"""Which of some trainings are best."""

from collections.abc import Callable

from lab.probes.frontier.results import Row


def frontier(rows: list[Row], cost: Callable[[Row], float]) -> list[Row]:
    """Those that no other one beats in both loss and cost, the cheapest first."""
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: (cost(row), row.loss)):
        if not found or row.loss < found[-1].loss:
            found.append(row)
    return found


def first_at(row: Row, loss: float, cost: Callable[[Row, int, float], float]) -> float | None:
    """What it costs a row to reach a loss: at the first held-out loss that is as low; None if none
    is. `cost` of (the row, rounds, bytes of a worker)."""
    return next((cost(row, done, sent) for done, sent, at in row.curve if at <= loss), None)


def cheapest(
    rows: list[Row], loss: float, cost: Callable[[Row, int, float], float]
) -> tuple[Row, float] | None:
    """The row that reaches the loss at the lowest cost, and that cost; None if none does."""
    reached = [(row, first_at(row, loss, cost)) for row in rows]
    return min(
        ((row, at) for row, at in reached if at is not None), key=lambda pair: pair[1], default=None
    )
