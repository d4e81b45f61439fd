"""LocalSteps as the model averager of torch's post-local SGD."""

from torch.distributed.algorithms.model_averaging.averagers import ModelAverager

from deltawire.session.terms import Terms
from deltawire.torch.core import arguments, bootstrap
from deltawire.torch.local.local_steps import LocalSteps


class Averager(ModelAverager):
    """Replaces torch's PeriodicModelAverager, in PostLocalSGDOptimizer or called after each
    optimizer.step(): post-local SGD (Lin et al., "Don't Use Large Mini-Batches, Use Local SGD",
    ICLR 2020) with compressed rounds.

    A round ends after the trainer's `steps` local steps: the first after warmup_steps + steps, then
    every `steps`. torch's averager averages first one step after the warm-up, then every period,
    that is `steps` - 1 steps earlier each time.

    Args:
        trainer: the LocalSteps whose rounds it runs, with the local optimizer.
        warmup_steps: number of steps at the start in which it exchanges nothing, because
            DistributedDataParallel averages the gradients of all ranks: start_localSGD_iter of
            PostLocalSGDState. Local steps start from the resulting weights, which the first round
            compares between ranks. Equal on all ranks.

    Make it on every rank of the trainer's group at the same time, a collective. Raises
    InvalidArgumentError (a ValueError) for a bad number of steps; DeltawireError, alike on every
    rank, if ranks give different ones ("Mismatch") or one could not take part ("Aborted").

    Attributes:
        trainer: as given.
        step: steps so far, for PostLocalSGDOptimizer's state_dict. The trainer has its own.
    """

    def __init__(self, trainer: LocalSteps, warmup_steps: int = 0) -> None:
        if not isinstance(trainer, LocalSteps):
            raise TypeError(f"Averager takes a LocalSteps, not {type(trainer).__name__}")
        with bootstrap.Meeting(trainer.group, trainer.device) as meeting:
            arguments.check_count("warmup_steps", warmup_steps)
            meeting.agree_on(Terms("Averager", warmup_steps=warmup_steps))
        super().__init__(trainer.group)
        self.trainer = trainer
        self._warmup_steps = warmup_steps

    def average_parameters(self, params: object = None) -> None:
        """Call it after each step of the local optimizer. `params` is ignored: the trainer has its
        own. Raises like LocalSteps.step."""
        if self.step >= self._warmup_steps:
            self.trainer.stepped()
        elif self.step == self._warmup_steps - 1:
            self.trainer.start_from_here()
        self.step += 1
