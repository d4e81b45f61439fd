"""What a simulated job of an elastic session is held to when it is over."""

from collections import defaultdict

from lab.elastic_simulation.job import Commit, Job

# The last two: what kept the last attempt from connecting when the time to meet is over.
_ENDS = ("Excluded", "NoQuorum", "Aborted", "Timeout", "PeerLost")
# Its step may fail, and its members may meet, once for each fault, and once more.
_SPARE = 15.0  # seconds


def broken_promises(job: Job) -> list[str]:
    """What was broken, in words; an empty list: nothing."""
    return [
        *job.broken,
        *_differing_replicas(job),
        *_several_groups(job),
        *_lost_processes(job),
        *_long_waits(job),
        *_unheard_ends(job),
    ]


def _text(commit: Commit) -> str:
    return f"step {commit.step} in epoch {commit.epoch} of {commit.members}"


# All who commit a step in one epoch have the same members, steps before it, and weights.
def _differing_replicas(job: Job) -> list[str]:
    first: dict[tuple[int, int], Commit] = {}
    broken = []
    for each in job.commits:
        other = first.setdefault((each.epoch, each.step), each)
        for what in ("members", "before", "after", "weights"):
            if getattr(each, what) != getattr(other, what):
                broken.append(
                    f"processes {other.process} and {each.process} have other {what} "
                    f"after {_text(each)}"
                )
    return broken


# Steps form one line. Next to it may stand a last step that some have seen committed while those
# who go on did not hear of it (docs/design/commit.md, the limits): no step follows it.
def _several_groups(job: Job) -> list[str]:
    after: dict[int, dict[int, Commit]] = defaultdict(dict)
    for each in job.commits:
        after[each.before][each.after] = each
    broken = []
    for branches in after.values():
        going_on = [each for each in branches.values() if each.after in after]
        if len(going_on) > 1:
            broken.append("two groups go on, after " + " and ".join(map(_text, going_on)))
    return broken


# A session ends with an error that says why; and one process that dies, or is frozen for a while,
# ends nobody else's, nor does a scene with which a majority goes on. Who can't take part is told.
def _lost_processes(job: Job) -> list[str]:
    broken = []
    faults = [each for each in job.plan.faults if each.kind != "join"]
    harmless = {"kill", "power off", "freeze", "leave", "raise"}
    mild = len(faults) <= 1 and all(each.kind in harmless for each in faults) and job.plan.world > 2
    mild = mild or job.plan.is_pure
    victims = {each.process for each in faults if each.kind in harmless}
    victims |= {each.process for each in job.lives.values() if each.frozen}
    for life in job.lives.values():
        error = life.error
        if error is None:
            continue
        if life.elements > 1 and (error.code == "Mismatch" or not mild):
            continue
        if life.met and error.code not in _ENDS:
            broken.append(f"process {life.process} ends with {error.code}: {error}")
        if life.met and mild and life.process not in victims:
            broken.append(f"process {life.process} ends because of one fault: {error}")
    return broken


# Who was frozen or cut off, and comes back, hears of those that went on.
def _unheard_ends(job: Job) -> list[str]:
    return [
        f"process {life.process} ends with {life.error.code} instead of Excluded: {life.error}"
        for life in job.lives.values()
        if life.missed and life.met and life.elements == 1
    ]


def _long_waits(job: Job) -> list[str]:
    rounds = 2 + len(job.plan.faults)
    longest = rounds * (job.plan.timeout + 1.3 * job.plan.meeting + _SPARE)
    return [
        f"process {life.process} waited {life.waited:.1f} s for a step"
        for life in job.lives.values()
        if life.waited > longest
    ]
