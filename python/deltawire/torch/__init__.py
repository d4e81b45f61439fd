"""deltawire under PyTorch: one line makes DistributedDataParallel, or fully_shard between nodes,
exchange compressed gradients::

    hook = deltawire.torch.register(ddp_model, "3lc:s=1.75")

`LocalSteps` is for infrequent synchronization: it exchanges weight changes; `Averager` puts
it where torch's post-local SGD has an averager. `ParameterServer` is for ranks that own the model
and others that compute its gradients. `trace` records the gradients of any training run.
"""

from deltawire.torch import version as version  # first: it says where PyTorch is missing or too old
from deltawire.torch.all_ranks import AllRanks
from deltawire.torch.auto_explanation import AutoExplanation
from deltawire.torch.auto_hook import AutoHook
from deltawire.torch.averager import Averager
from deltawire.torch.checkpoint import saved_states
from deltawire.torch.explanation import Explanation, TensorRow, explain
from deltawire.torch.fsdp_hook import ShardedHook
from deltawire.torch.hook import Hook
from deltawire.torch.local_steps import LocalSteps
from deltawire.torch.momentum_advice import MomentumWarning
from deltawire.torch.parameter_server import ParameterServer
from deltawire.torch.recording import Recording, trace
from deltawire.torch.registration import register
from deltawire.torch.rendezvous import init_process_group
from deltawire.torch.significance import SignificanceSource, significance_of
from deltawire.torch.timeline import timeline

__all__ = [
    "AllRanks",
    "AutoExplanation",
    "AutoHook",
    "Averager",
    "Explanation",
    "Hook",
    "LocalSteps",
    "MomentumWarning",
    "ParameterServer",
    "Recording",
    "ShardedHook",
    "SignificanceSource",
    "TensorRow",
    "explain",
    "init_process_group",
    "register",
    "saved_states",
    "significance_of",
    "timeline",
    "trace",
]
