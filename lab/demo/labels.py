"""The names of rows and trainings in tables, figures and messages."""

from lab.demo.methods import PLAIN, Method
from lab.demo.settings import Settings


def label_of(method: Method, settings: Settings) -> str:
    """The row's name; it says when the link is modelled, and when the row has an optimizer of its
    own."""
    if method.name == PLAIN and settings.bytes_per_second is not None:
        return f"{method.label} ({'real link' if settings.namespaces else 'modelled'})"
    return method.label + own_optimizer(method, settings)


def own_optimizer(method: Method, settings: Settings) -> str:
    """ ", momentum 0, rate x 5" for a row that differs from the demo's settings, ", momentum as
    rate" or ", optimizer's rule" for one where `register` sees to it; else nothing."""
    own = settings.of_row(method)
    if settings.by_rule(method) and own.optimizer == "adamw":
        return ", optimizer's rule"
    if settings.by_rule(method) and settings.momentum:
        return ", momentum as rate"
    if own.optimizer != settings.optimizer or (own.momentum, own.lr) == (
        settings.momentum,
        settings.lr,
    ):
        return ""
    return f", momentum {own.momentum:g}, rate x {own.lr / settings.lr:.2g}"


def seed_prefix(settings: Settings, repeat: dict) -> str:
    """ "seed 2: " if a row has several trainings; else nothing."""
    return f"seed {repeat['seed']}: " if settings.repeats > 1 else ""
