"""deltawire under Lightning: a callback for Trainer(strategy="ddp")."""

from deltawire.torch.ddp.all_ranks import AllRanks
from deltawire.torch.ddp.hook import Hook
from deltawire.torch.register import register

try:
    from lightning.pytorch import Callback as _Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning import Callback as _Callback
    except ModuleNotFoundError as cause:
        raise ModuleNotFoundError(
            "deltawire.lightning needs Lightning, which isn't installed: pip install lightning"
        ) from cause


class Callback(_Callback):
    """Registers the model when `fit` begins: Lightning wraps it in DistributedDataParallel between
    its hooks `setup` and `on_fit_start`, so that user code can't register it earlier.

    The trainer's checkpoints include the residuals of all ranks, and `fit(ckpt_path=)` restores
    them, also on another number of ranks (`Hook.load_state_dict`). A second `fit` continues with
    the residuals of the first.

    Args:
        spec, options: as `deltawire.torch.register`'s, equal on all ranks; optimizer=True are the
            trainer's optimizers.

    Attributes:
        hook: the last `fit`'s; None before the first.

    Errors of `register` come from `Trainer.fit`, which also refuses encryption="required"
    (`AllRanks`). Thread rule: Lightning's own.
    """

    def __init__(self, spec: str, **options) -> None:
        self.hook: Hook | None = None
        self._spec = spec
        self._options = options
        self._state: dict | None = None  # of all ranks, of a checkpoint or an earlier fit

    def on_fit_start(self, trainer, pl_module) -> None:
        """Registers the model."""
        options = dict(self._options)
        if options.get("optimizer") is True:
            options["optimizer"] = trainer.optimizers
        self.hook = register(trainer.strategy.model, self._spec, **options)
        all_ranks = AllRanks(self.hook)  # or an error, before anything is trained
        if self._state is not None:
            all_ranks.load_state_dict(self._state)
            self._state = None

    def on_fit_end(self, trainer, pl_module) -> None:
        """Closes the hook. Residuals are kept, so that a checkpoint may still be saved."""
        self._state = AllRanks(self.hook).state_dict()
        self.hook.close()

    def state_dict(self) -> dict:
        """The state of all ranks: a collective, which Lightning calls on each of them."""
        if self.hook is None or self._state is not None:
            return self._state or {}
        return AllRanks(self.hook).state_dict()

    def load_state_dict(self, state_dict: dict) -> None:
        """Keeps the state until `on_fit_start`: Lightning calls this before there is a hook."""
        self._state = state_dict
