"""Adam and AdamW without momentum, for tensors whose gradients arrive late.

Adam's first moment is a weighted mean: beta1 delays each gradient by beta1 / (1 - beta1) steps on
average and adds nothing to it. Error feedback delays it as well, and both together are too late
(docs/results/training/late-codecs.md). So such tensors are stepped with beta1 = 0.
"""

from deltawire.torch.core.optimizer_rules.rule import LateRule


class AdamWithoutMomentum(LateRule):
    """Steps the late tensors of a model by Adam or AdamW with beta1 = 0, at a share of the rate:
    without the mean over steps each one is longer.

    In the optimizer's state their first moment is then the last gradient, from which a step without
    this rule may go on.
    """

    _named = "beta1 0 for what arrives late"

    def _applies_to(self, group: dict) -> bool:
        return float(group["betas"][0]) > 0

    def _settings(self, group: dict) -> dict:
        return {"betas": (0.0, group["betas"][1]), "lr": self._advice.rate_share * group["lr"]}

    def _change(self, group: dict) -> str:
        beta1 = float(group["betas"][0])
        return f"beta1={beta1:g} becomes 0, at {self._advice.rate_share:g} times the learning rate"

    def _shown(self, group: dict, step: int) -> dict[str, float]:
        return {"beta1": 0.0, "rate_times": self._advice.rate_share}
