"""deltawire for Flower: two lines in an existing app::

    app = ClientApp(mods=[deltawire.flower.mod("sbc:p=1%")])               # client_app.py
    strategy = deltawire.flower.Compressed(FedAvg(...), down="3lc")        # server_app.py

Clients send updates, and the server the model, as compressed frames with error feedback. Each reply
is checked; a bad one is left out of its round, and the run continues. docs/guides/federated.md.
"""

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as cause:
    if cause.name is None or cause.name.split(".")[0] != "flwr":
        raise
    raise ModuleNotFoundError(
        "deltawire.flower needs Flower, which is not installed: pip install 'flwr>=1.41'",
        name="flwr",
    ) from None

from deltawire.flower.client_mod import mod
from deltawire.flower.strategy import Compressed

__all__ = ["Compressed", "mod"]
