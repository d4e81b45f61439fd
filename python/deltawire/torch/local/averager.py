"""LocalSteps where torch's post-local SGD has a model averager."""

from torch.distributed.algorithms.model_averaging.averagers import ModelAverager

from deltawire.terms import Terms
from deltawire.torch.core import arguments, bootstrap
from deltawire.torch.local.local_steps import LocalSteps


class Averager(ModelAverager):
    """Takes the place of torch's PeriodicModelAverager, in PostLocalSGDOptimizer or called after
    each optimizer.step(): post-local SGD (Lin et al., "Don't Use Large Mini-Batches, Use Local
    SGD", ICLR 2020) with compressed rounds.

    A round ends after the trainer's `steps` local steps: the first after warmup_steps + steps, and
    then every `steps`. torch's averager averages for the first time one step after the warm-up, and
    then every period, so that its averages come `steps` - 1 steps earlier.

    Args:
        trainer: whose rounds it runs; its optimizer is the local one.
        warmup_steps: so many steps at the start exchange nothing here, because gradients are
            averaged by DistributedDataParallel over all ranks: PostLocalSGDState's
            start_localSGD_iter. The local steps begin with the weights that this leaves, which
            the first round compares between ranks. Equal on all ranks.

    Made on every rank of the trainer's group at once, a collective there. Raises
    InvalidArgumentError (a ValueError) for no number of steps, DeltawireError alike on every rank
    where another has another one ("Mismatch") or could not take part ("Aborted").

    Attributes:
        trainer: as given.
        step: steps so far, for PostLocalSGDOptimizer's state_dict. The trainer has its own.
    """

    def __init__(self, trainer: LocalSteps, warmup_steps: int = 0) -> None:
        with bootstrap.Meeting(trainer.group) as meeting:
            arguments.check_count("warmup_steps", warmup_steps)
            meeting.agree_on(Terms("Averager", warmup_steps=warmup_steps))
        super().__init__(trainer.group)
        self.trainer = trainer
        self._warmup_steps = warmup_steps

    def average_parameters(self, params: object = None) -> None:
        """After each step of the local optimizer; `params` are not looked at, for the trainer has
        its own. Raises as LocalSteps.step does."""
        if self.step >= self._warmup_steps:
            self.trainer.stepped()
        elif self.step == self._warmup_steps - 1:
            self.trainer.start_from_here()
        self.step += 1
