"""The server's side: any strategy, with compressed messages and checked replies."""

from collections.abc import Callable, Iterable

from flwr.serverapp.strategy import Strategy

from deltawire.flower.grid import CompressedGrid
from deltawire.rounds.intake import MOST_SAMPLES
from deltawire.rounds.limits import TEN_MEDIANS, TWO_MEDIANS, Medians
from deltawire.rounds.observability import Seen


class Compressed(Strategy):
    """A strategy whose messages are compressed, and whose replies are checked::

        strategy = deltawire.flower.Compressed(FedAvg(...), down="3lc")
        result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)

    It wraps the grid that `start` gets, and does not change the strategy: FedAvg, FedAdam,
    FedMedian, FedTrimmedAvg, Krum and similar ones. Every client needs `deltawire.flower.mod`.

    A reply is dropped, with its client's name in the log, and the round continues, if it is for
    another round or version; its frame doesn't decode, has another codec, or values that are not
    finite; its arrays or metrics are not the expected ones, or not finite; its norm is above
    `max_norm`; or its sample count is out of range.

    Args:
        strategy: any of Flower's, or with the same interface.
        down: codec of the model sent to clients; None: it is sent without loss, as a patch if that
            is smaller than the model.
        up: codec that clients must use; None: each may use its own.
        max_norm: the largest Euclidean norm of an update: a number, or `deltawire.rounds.Medians`
            of the round's updates (of three or more); None: any finite one.
        max_samples: the most samples that a client may claim.
        sample_cap: a client counts with at most this many samples: a number, or `Medians` of the
            round's claims (by default twice the median); None: no cap. Capped clients are logged.
        min_elements: arrays below this many elements are sent uncompressed; as the mods'.
        weights: "bfloat16": the model that clients get is rounded to it; the strategy's has all
            bits.
        bases: how many earlier versions are kept to make patches from, each a model in memory; 0:
            no patches. None: 8, or 0 with `down`.
        watch: called with a `deltawire.rounds.Seen` after each exchange, and after each test on the
            server (`evaluate_fn`): `rounds.live_line`, `rounds.TensorBoard(folder)`.

    Attributes:
        strategy: the wrapped one; attributes that this object lacks are taken from it.
        grid: the wrapped grid, once started; `grid.counts` and `grid.refused` describe the run.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        down: str | None = "3lc",
        up: str | None = None,
        max_norm: float | Medians | None = TEN_MEDIANS,
        max_samples: int = MOST_SAMPLES,
        sample_cap: int | Medians | None = TWO_MEDIANS,
        min_elements: int = 256,
        weights: str = "float32",
        bases: int | None = None,
        watch: Iterable[Callable[[Seen], None]] = (),
    ) -> None:
        self.strategy = strategy
        self.grid: CompressedGrid | None = None
        self._options = {
            "down": down,
            "up": up,
            "max_norm": max_norm,
            "max_samples": max_samples,
            "sample_cap": sample_cap,
            "min_elements": min_elements,
            "weights": weights,
            "bases": bases,
            "watch": tuple(watch),
        }
        CompressedGrid(None, **self._options)  # a bad argument is an error now, not at the start

    def start(self, grid, *args, **settings):
        """The wrapped strategy's `start`, through compressed messages."""
        key = getattr(self.strategy, "weighted_by_key", "num-examples")
        self.grid = CompressedGrid(grid, samples_key=key, **self._options)
        if settings.get("evaluate_fn") is not None:
            settings["evaluate_fn"] = self._watched(settings["evaluate_fn"])
        return self.strategy.start(self.grid, *args, **settings)

    def _watched(self, evaluate: Callable) -> Callable:
        """The server's test, whose result is passed to watchers."""

        def told(server_round, arrays):
            metrics = evaluate(server_round, arrays)
            numbers = {k: v for k, v in (metrics or {}).items() if isinstance(v, int | float)}
            self.grid.tell(Seen("server", server_round - 1, metrics=numbers))
            return metrics

        return told

    def configure_train(self, *args, **settings):
        """Asks the wrapped strategy, whose messages are plain."""
        return self.strategy.configure_train(*args, **settings)

    def aggregate_train(self, *args, **settings):
        """Passes checked, plain replies to the wrapped strategy."""
        return self.strategy.aggregate_train(*args, **settings)

    def configure_evaluate(self, *args, **settings):
        """Asks the wrapped strategy, whose messages are plain."""
        return self.strategy.configure_evaluate(*args, **settings)

    def aggregate_evaluate(self, *args, **settings):
        """Passes checked replies to the wrapped strategy."""
        return self.strategy.aggregate_evaluate(*args, **settings)

    def summary(self) -> None:
        """Logs the wrapped strategy's summary."""
        self.strategy.summary()

    def __getattr__(self, name: str):
        if name == "strategy":  # while unpickling there is none yet
            raise AttributeError(name)
        return getattr(self.strategy, name)
