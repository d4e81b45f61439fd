"""deltawire for PyTorch. One line makes DistributedDataParallel, or fully_shard between nodes,
exchange compressed gradients::

    hook = deltawire.torch.register(ddp_model, "3lc:s=1.75")

`LocalSteps` synchronizes infrequently, by exchanging weight changes; `Averager` makes it the model
averager of torch's post-local SGD; `ElasticLocalSteps` goes on when ranks die, leave and join. With
`ParameterServer` some ranks own the model and the others compute its gradients. `Publisher` serves
a model's new weights to each `Subscriber`. `trace` records the gradients of any training run.
"""

from deltawire.live import Publisher, ReaderState, Subscriber  # needs no PyTorch
from deltawire.torch import version as version  # says where PyTorch is missing or too old
from deltawire.torch.auto.hook import AutoExplanation, AutoHook
from deltawire.torch.core.checkpoint import saved_states
from deltawire.torch.core.optimizer_rules.momentum_advice import MomentumWarning
from deltawire.torch.core.process_group import init_process_group
from deltawire.torch.core.significance import SignificanceSource, significance_of
from deltawire.torch.ddp.all_ranks import AllRanks
from deltawire.torch.ddp.hook import Hook
from deltawire.torch.fsdp.hook import ShardedHook
from deltawire.torch.local.elastic import ElasticLocalSteps
from deltawire.torch.local.local_steps import Averager, LocalSteps
from deltawire.torch.local.outer import RisingSGD
from deltawire.torch.metrics.explanation import Explanation, TensorRow, explain
from deltawire.torch.metrics.recording import Recording, trace
from deltawire.torch.metrics.timeline import timeline
from deltawire.torch.register import register
from deltawire.torch.server.parameter_server import ParameterServer

__all__ = [
    "AllRanks",
    "AutoExplanation",
    "AutoHook",
    "Averager",
    "ElasticLocalSteps",
    "Explanation",
    "Hook",
    "LocalSteps",
    "MomentumWarning",
    "ParameterServer",
    "Publisher",
    "ReaderState",
    "Recording",
    "RisingSGD",
    "ShardedHook",
    "SignificanceSource",
    "Subscriber",
    "TensorRow",
    "explain",
    "init_process_group",
    "register",
    "saved_states",
    "significance_of",
    "timeline",
    "trace",
]
