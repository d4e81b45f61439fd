"""The token, which publishers and subscribers must have."""

from deltawire import arguments
from deltawire.errors import make_error


def secret_of(token: str | bytes | None) -> bytes:
    """The bytes of `token`, by default of DELTAWIRE_TOKEN. Raises InvalidArgumentError."""
    secret = arguments.secret(token)
    if secret is None:
        raise make_error(
            "InvalidArgument",
            "no token: set DELTAWIRE_TOKEN to the same value for publisher and subscribers, or "
            "pass token=; make one with `openssl rand -hex 32`",
        )
    return secret
