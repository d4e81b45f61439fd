"""deltawire under PyTorch: one line makes DistributedDataParallel exchange compressed gradients.

hook = deltawire.torch.register(ddp_model, "3lc:s=1.75")
"""

from deltawire.torch.hook import Hook
from deltawire.torch.registration import register
from deltawire.torch.significance import SignificanceSource, significance_of

__all__ = ["Hook", "SignificanceSource", "register", "significance_of"]
