"""Whether a spec's codec uses significance: how much of a gradient the optimizer can see."""

from deltawire import _core
from deltawire.errors import make_error


def require_use(spec: _core.Spec, argument: str) -> None:
    """Raises InvalidArgumentError if `argument` would have no effect."""
    if spec.uses_significance:
        return
    users = [info.name for info in _core.registered_codecs() if info.significance]
    advice = f", or use a codec that cuts by it: {', '.join(users)}" if users else ""
    raise make_error(
        "InvalidArgument", f"{argument} has no effect with '{spec.given}'; leave it out{advice}"
    )
