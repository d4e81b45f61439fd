"""The token, which publishers and subscribers must have."""

import ssl

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


def check_tls(name: str, context: object) -> None:
    """Raises TypeError for anything but an ssl.SSLContext or None."""
    if context is not None and not isinstance(context, ssl.SSLContext):
        raise TypeError(f"{name} must be an ssl.SSLContext or None, not {type(context).__name__}")
