"""Runs a member of the soak in a process of its own."""

import logging
import os
from multiprocessing.connection import Connection

from lab.probes.elastic_soak.member import Member, Task
from lab.ranks.namespaces import enter_namespace


def run_member(say: Connection, place: dict, addresses: str, task: Task) -> None:
    """In a process of its own."""
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    if task.namespace is not None:
        enter_namespace(task.namespace)
    logging.basicConfig(level=logging.CRITICAL)
    member = Member(say.send, task)
    if task.rounds:
        from lab.probes.elastic_soak.rounds import RoundsMember

        member = RoundsMember(say.send, task)
    member.run(place, addresses)
    say.send(("end",))
