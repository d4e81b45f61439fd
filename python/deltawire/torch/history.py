"""What a rank's buckets cost, for PyTorch's doors too."""

from deltawire.history import RECORDED_STEPS, History

__all__ = ["RECORDED_STEPS", "History"]
