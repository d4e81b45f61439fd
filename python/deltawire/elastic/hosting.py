"""The host of a meeting: it waits for the members that live, decides on the next view, and gives
each what it needs."""

import contextlib
import math
import time
from collections.abc import Set

from deltawire.elastic.agreement import Agreement, Standing, send_agreement, standing_of
from deltawire.elastic.calls import SILENCE, WAIT, said
from deltawire.elastic.giving import give_state
from deltawire.elastic.meeting import Meeting, excluded
from deltawire.elastic.reception import Visitor, kept_waiting
from deltawire.elastic.shares import collect, spread
from deltawire.elastic.views import Member, View, may_go_on, without_quarrels
from deltawire.errors import DeltawireError

_SLICE = 0.02  # seconds
# How long a member is waited for that answers and doesn't come: 0.4 of the meeting's time. It may
# still settle the failed step with a rank that is silent, and hear reports (docs/design/commit.md):
# so 6 s where that is longer, but no more than 0.6.
_BUSY, _BUSY_MOST, _SETTLING = 0.4, 0.6, 6.0
# And after an attempt that failed, SILENCE or that part of the time: some may wait elsewhere.
_AGAIN = 0.15


class Hosting:
    """One attempt of one member to host a meeting."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting
        self._means = meeting.means
        self._begun_at = time.monotonic()
        self._left: dict[int, str] = {}  # who left, as callers say
        self._callers: dict[int, tuple[Visitor, Standing]] = {}
        self._joiners: list[Visitor] = []
        self._probes = meeting.probes
        self._gone: dict[int, str] = {}

    def host(self) -> Agreement | None:
        """The agreement; None if a member with a lower id shall host. Raises DeltawireError."""
        try:
            while True:
                self._meeting.check_open()
                self._receive()
                absent = self._absent()
                if self._shall_yield(absent):
                    self._tell_all({"say": "again"})
                    return None
                settled = [self._is_settled(member) for member in absent]
                if all(settled) and (agreement := self._decide()) is not None:
                    return agreement
                if self._meeting.passed() > 1:
                    self._meeting.check_included()
                    raise self._alone()
                time.sleep(_SLICE)
        except BaseException as error:
            # Or they would be kept waiting for as long as this process lives.
            alone = isinstance(error, DeltawireError) and error.code == "NoQuorum"
            self._tell_all({"say": "alone", "why": str(error)} if alone else {"say": "again"})
            raise

    def _receive(self) -> None:
        for visitor in self._means.reception.take_callers():
            visitor.keep({**WAIT, "hosted": True})
            with contextlib.suppress(DeltawireError):
                standing, left = standing_of(visitor.said)
                if standing.job == self._meeting.standing.job:
                    self._callers[standing.own_id] = visitor, standing
                    self._left.update(left)
        self._joiners += self._means.reception.take_joiners()
        self._callers = {k: each for k, each in self._callers.items() if each[0].is_there()}
        self._joiners = [each for each in self._joiners if each.is_there()]

    def _standings(self) -> dict[int, Standing]:
        own = self._meeting.standing
        return {own.own_id: own} | {k: standing for k, (_, standing) in self._callers.items()}

    def _gone_by_will(self) -> dict[int, str]:
        return self._means.reception.left() | self._left

    def _known(self) -> dict[int, Member]:
        views = [view for each in self._standings().values() for view in each.views]
        return {member.id: member for view in views for member in view.members}

    def _absent(self) -> list[Member]:
        here = self._standings().keys() | self._gone_by_will().keys()
        return [member for each, member in sorted(self._known().items()) if each not in here]

    def _why_absent(self) -> str:
        absent = [member.id for member in self._absent()]
        return "; ".join(f"member {each}: {self._gone.get(each, 'unknown')}" for each in absent)

    # Whether it is known what the member does: it comes no more, or answers but is too late.
    def _is_settled(self, member: Member) -> bool:
        self._probes.ask(member)
        found = self._probes.found(member)
        if found is None:
            return False
        if "gone" in found:
            self._gone[member.id] = found["gone"]
            return True
        self._gone[member.id] = "it answered, but did not come to the meeting in time"
        settling = min(_BUSY_MOST, _SETTLING / self._means.seconds)
        again = self._begun_at + min(SILENCE, _AGAIN * self._means.seconds)
        return self._meeting.passed() > max(_BUSY, settling) and time.monotonic() > again

    def _shall_yield(self, absent: list[Member]) -> bool:
        own = self._meeting.standing
        for member in absent:
            found = self._probes.found(member)
            if found is None or "gone" in found or member.id in self._meeting.given_up:
                continue
            if self._meeting.is_left_out(found):
                self._tell_all({**found, "say": "excluded"})
                raise excluded(found)
            if member.id < own.own_id:
                return True
        return False

    def _tell_all(self, message: dict) -> None:
        for visitor in [each for each, _ in self._callers.values()]:
            said(visitor.line, message)
        for visitor in self._joiners:
            said(visitor.line, {"say": "again"})
        self._callers, self._joiners = {}, []

    def _alone(self) -> DeltawireError:
        error = self._meeting.out_of_time()
        here = sorted(self._standings())
        rule = (
            "more than half of the last epoch's members, or half with the lowest id, must be there"
            if self._means.at_least is None
            else f"at_least={self._means.at_least}"
        )
        text = f"{error}: members {here} are there, and {rule} ({self._why_absent()})"
        return type(error)(text, error.code)

    def _decide(self) -> Agreement | None:
        standings = _of_one_step(self._standings())
        own = self._meeting.standing
        if own.own_id not in standings:  # the others are at another step
            raise excluded({"why": "the other members are at another step"})
        quarrels = [(k, other) for k, each in standings.items() for other in each.blamed]
        chosen = without_quarrels(standings, quarrels)
        if own.own_id not in chosen:
            return None
        views = list({view: None for k in chosen for view in standings[k].views})
        # Without the processes that join, which may die before they are connected, the others must
        # still have a quorum of the view.
        joiners = self._joiners[: len(chosen)]
        if self._means.at_least is not None:
            joiners = self._joiners
            enough = len(chosen) + len(joiners) >= self._means.at_least
        else:
            enough = may_go_on(chosen, views, self._gone_by_will().keys())
        if not enough:
            return None
        if joiners and not self._have_the_state(joiners, chosen):
            return None  # decide anew, without those that are gone
        for each in self._callers.keys() - chosen:
            why = "it is at another step, or others could not connect to it"
            answer = {"say": "excluded", "why": why, "view": own.latest.plain()}
            said(self._callers.pop(each)[0].line, answer)
        return self._propose({k: standings[k] for k in sorted(chosen)}, views, joiners)

    # Gives the state to those that don't have it. False: some are gone meanwhile.
    def _have_the_state(self, joiners: list[Visitor], chosen: set[int]) -> bool:
        late = [each for each in joiners if not each.ready]
        if not late:
            return True
        known, own = self._known(), self._meeting.standing.own_id
        doors = [list(self._means.reception.address)]
        doors += [list(known[each].address) for each in sorted(chosen) if each != own]
        visitors = [self._callers[each][0] for each in sorted(chosen) if each != own]
        begun = time.monotonic()
        give_state(self._means, late, visitors, doors)
        self._meeting.begun_at += time.monotonic() - begun  # it stood still for the others, too
        gone = [each for each in late if not each.ready]
        self._joiners = [each for each in self._joiners if each not in gone]
        return not gone

    def _propose(
        self, chosen: dict[int, Standing], views: list[View], joiners: list[Visitor]
    ) -> Agreement | None:
        own = self._meeting.standing
        next_id = max(view.next_id for view in views)
        known = self._known()
        members = [known[each] for each in chosen]
        for number, visitor in enumerate(joiners):
            host, port = visitor.said["address"]
            members.append(Member(next_id + number, str(host), int(port)))
        heard = [max(each.latest.epoch, each.promised) for each in self._standings().values()]
        view = View(1 + max(heard), tuple(members), next_id + len(joiners))
        base = next((standing.base for standing in chosen.values() if standing.base), None)
        gone = {
            each: self._gone_by_will().get(each) or self._gone.get(each, "")
            for each in (base.ids if base else set()) - chosen.keys()
        }
        shares = self._share(view, chosen.keys(), base, joiners)
        if shares is None:
            return None
        listener = self._means.listen()
        agreement = Agreement(
            own.job,
            view,
            base,
            listener.endpoint,
            own.steps,
            gone,
            self._means.all_tensors(),
            self._means.opens,
            shares if base is not None and base.ids != view.ids else None,
        )
        agreement.listener = listener
        agreement.residuals = _residuals(chosen, len(gone))
        agreement.lines = [each.line for each in joiners]
        self._send(agreement, joiners, next_id)
        return agreement

    # Brings the residuals together on all, if others than the base's members go on; and all promise
    # that they agree to no other view of this epoch, which a host may have decided and not sent
    # when it freezes. None: some are gone meanwhile, so that it is to be decided anew.
    def _share(
        self, view: View, chosen: Set[int], base: View | None, joiners: list[Visitor]
    ) -> dict[int, bytes] | None:
        own = self._meeting.standing.own_id
        self._meeting.standing.promised = view.epoch
        owes = base.ids if base is not None and base.ids != view.ids else frozenset()
        visitors = {each: self._callers[each][0] for each in chosen if each != own}
        new = {-1 - number: visitor for number, visitor in enumerate(joiners)}
        begun = time.monotonic()
        with kept_waiting([*visitors.values(), *joiners]):
            owing = {each: visitor for each, visitor in visitors.items() if each in owes}
            shares, lost = collect(owing)
            if not lost:
                if own in owes:
                    shares[own] = self._means.share()
                everybody = {**visitors, **new}
                lost = spread(view.epoch, shares, everybody, self._means.chunk_seconds)
        self._meeting.begun_at += time.monotonic() - begun
        known = self._known()
        for each, error in lost.items():
            if each in new:
                self._joiners.remove(new[each])
            else:
                del self._callers[each]
                self._probes.note(known[each], error)
        return None if lost else shares

    # Whoever is gone by now will be missing in the mesh.
    def _send(self, agreement: Agreement, joiners: list[Visitor], next_id: int) -> None:
        for number, visitor in enumerate(joiners):
            with contextlib.suppress(DeltawireError):
                send_agreement(visitor, agreement, next_id + number)
        for visitor, _ in self._callers.values():
            with contextlib.suppress(DeltawireError):
                send_agreement(visitor, agreement)
        self._callers, self._joiners = {}, []


def _of_one_step(standings: dict[int, Standing]) -> dict[int, Standing]:
    """Those that stand at the step where most do, of the latest base. With equal numbers, the later
    step. A step that some have committed and others reverted can only be one apart
    (docs/design/commit.md)."""
    epochs = [each.base.epoch for each in standings.values() if each.base is not None]
    latest = max(epochs, default=-1)
    now = {k: s for k, s in standings.items() if s.base is None or s.base.epoch == latest}
    numbers = [each.steps for each in now.values()]
    step = max(numbers, key=lambda number: (numbers.count(number), number))
    return {k: each for k, each in now.items() if each.steps == step}


def _residuals(chosen: dict[int, Standing], gone: int) -> tuple[float, float]:
    """The L2 norm of what the members of the base that go on hold back, and an estimate for those
    `gone`: as if each had the mean square of those that go on."""
    squares = [each.residual for each in chosen.values() if each.base is not None]
    mean = sum(squares) / max(1, len(squares))
    return math.sqrt(sum(squares)), math.sqrt(gone * mean)


def host(meeting: Meeting) -> Agreement | None:
    """Hosts the meeting, for `Meeting.agree`."""
    return Hosting(meeting).host()
