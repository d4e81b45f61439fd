"""What `auto` chose, and why, as a table."""

import dataclasses

from deltawire.torch.auto.decision import Decision
from deltawire.torch.metrics.explanation import Explanation

_COLUMNS = ("codec", "loses", "bits", "ms a step", "x plain", "pays below")


@dataclasses.dataclass(frozen=True)
class AutoExplanation:
    """str() of it is the plan's table, followed by the codec of each tensor.

    Attributes:
        tier: what codecs may lose.
        phase: see `AutoHook.metrics`.
        decision: None before the first plan.
        tensors: None unless a codec is in use.
    """

    tier: str
    phase: str
    decision: Decision | None
    tensors: Explanation | None

    def to_dict(self) -> dict:
        """For JSON."""
        return {
            "tier": self.tier,
            "phase": self.phase,
            "decision": self.decision.as_dict() if self.decision else None,
            "tensors": self.tensors.to_dict() if self.tensors else None,
        }

    def __str__(self) -> str:
        head = f"auto, tier {self.tier}, {self.phase}"
        if self.decision is None:
            return f"{head}: no plan was made yet"
        text = [f"{head}: {self.decision.reason}", "", *self._table(), *self._legend()]
        if self.tensors is not None:
            text += ["", str(self.tensors)]
        return "\n".join(text)

    def _table(self) -> list[str]:
        bits, plain = f"{self.decision.native_bits:.4g}", f"{self.decision.plain_ms:.2f}"
        lines = [_COLUMNS, ("native", "nothing", bits, plain, "1.00", "")]
        for row in self.decision.rows:
            below = row["gains_below"]
            lines.append(
                (
                    row["codec"] + (" *" if row["codec"] in self._chosen() else ""),
                    row["tier"],
                    f"{row['bits_per_value']:.2f}",
                    f"{row['predicted_ms']:.2f}",
                    f"{row['times_faster']:.2f}",
                    "never" if below is None else f"{8e-6 * below:,.4g} Mbit/s",
                )
            )
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]

    def _chosen(self) -> list[str | None]:
        """The chosen specs: one for all buckets, or one for each."""
        if not self.decision.by_bucket:
            return [self.decision.spec]
        pattern = self.decision.spec.partition("(")[0]
        return [f"{pattern}({codec})" for codec in self.decision.by_bucket]

    def _legend(self) -> list[str]:
        rate, latency = self.decision.link
        return [
            "",
            "link, by probes and steps: "
            f"{8e-6 * rate:,.4g} Mbit/s, {1e3 * latency:.3g} ms one way.",
            "ms a step: predicted, from its forward pass until the means are in place;",
            f"measured with the native all-reduce: {self.decision.native_ms:.2f} ms.",
            *(f"left out: {line}" for line in self.decision.refused),
        ]
