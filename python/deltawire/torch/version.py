"""Which PyTorch this package works with. Imported before all of it that needs a newer one."""

from deltawire.errors import wrong_state

OLDEST = (2, 6)

try:
    import torch
except ModuleNotFoundError as cause:
    if cause.name != "torch":
        raise
    raise ImportError(
        "deltawire.torch needs PyTorch, which is not installed: pip install "
        f"'torch>={OLDEST[0]}.{OLDEST[1]}'",
        name="torch",
    ) from None


def check(version: str) -> None:
    """Raises DeltawireError ("State") for a PyTorch that is older than OLDEST.

    Args:
        version: torch.__version__, "2.13.0+cpu" for instance.
    """
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise wrong_state(
            f"PyTorch {version} is too old for deltawire.torch, which needs {oldest} or newer; "
            f"install torch>={oldest}, or use deltawire.Session, which needs no PyTorch"
        )


check(torch.__version__)
