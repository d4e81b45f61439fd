"""Ranks of a parameter server, for its tests: the first serve, the others train."""

import contextlib

import deltawire.torch
import pytest
import torch
from models import Net, backward, fingerprint

SOON = 60.0  # a timeout that a test never waits for


def sgd(model, rate=0.05, **options):
    return torch.optim.SGD(model.parameters(), lr=rate, **options)


@contextlib.contextmanager
def staged(wanted):
    """Whether parameters of models that are served meanwhile have memory of their own, as those on
    a GPU have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTAWIRE_FORCE_STAGING", "on" if wanted else "off")
        yield


def part_of(rank, steps, make=sgd, network=Net, before=None, is_staged=False, **options):
    """What a rank of a job of so many steps does; (fingerprint, metrics) of it."""
    model = network()
    with staged(is_staged):
        server = deltawire.torch.ParameterServer(model, make(model), timeout=SOON, **options)
    if server.serves:
        server.serve()
    else:
        worker = rank - server.servers
        while server.steps < steps and not server.ended:
            if before is not None:
                before(server, worker)
            backward(model, worker, server.steps)
            server.step()
        server.wait()
    server.close()
    return fingerprint(model), server.metrics()
