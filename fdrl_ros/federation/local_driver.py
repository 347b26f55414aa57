# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The in-process driver: moves messages between parties in one thread, for research and tests."""

from collections import deque
from collections.abc import Callable, Mapping
import logging
from typing import Any

from fdrl_ros.errors import FdrlError, LateError, MessageError
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.message import Blame, Message
from fdrl_ros.federation.protocol.party import Effects, Job, Party
from fdrl_ros.runtime.stopwatch import Stopwatch

# Kinds that a party misses if it joins later. Of every other kind it gets the newest message of
# each sender that runs, as of a latched topic; of deliveries, its own; of blame, all.
PASSING = (
    protocol.DecryptRequest,
    protocol.HospitalPolicy,
    protocol.MaskedUpdate,
    protocol.Order,
    protocol.Relay,
    protocol.Verdict,
    protocol.Wanted,
)

log = logging.getLogger(__name__)


class LocalFederation:
    """
    Delivers every message to every other party in order and runs jobs at once.

    Its clock stands still while there is work and jumps to the next tick when there is none, so
    that deadlines pass without waiting.
    """

    def __init__(
        self,
        parties: Mapping[str, Party],
        *,
        report: Callable[[str, Any], None] = lambda party, progress: None,
        tick: float = 1.0,
    ) -> None:
        """
        Take over parties that have not been started.

        :param report: called with a party's name and the progress of its job.
        :param tick: how far the clock jumps when nothing is left to do, second.
        """
        self.parties: dict[str, Party] = {}
        self.stopwatch = Stopwatch()
        """The seconds of the parties' jobs, by name."""
        self.refused: list[tuple[str, MessageError]] = []
        self.notes: dict[str, str] = {}
        """The newest line that each party had for the log."""
        self._report = report
        self._tick = tick
        self.now = 0.0
        self.queue: deque[tuple[str, Callable[[], Effects]]] = deque()
        self.latched: dict[tuple[str, type[Message], str], Message] = {}
        self._stopped = False
        for name, party in parties.items():
            self.join(name, party)

    def join(self, name: str, party: Party) -> None:
        """Add a party, or one that was started again, and give it the latched messages."""
        self.parties[name] = party
        self._later(name, lambda: party.start(self.now))
        for (sender, _, _), message in list(self.latched.items()):
            if sender != name:
                self.deliver(name, message)

    def leave(self, name: str) -> None:
        """Remove a party at once, as a crash does."""
        del self.parties[name]
        self.latched = {key: each for key, each in self.latched.items() if key[0] != name}
        self.queue = deque(item for item in self.queue if item[0] != name)

    def stop(self) -> None:
        """Ask running jobs to stop, and :meth:`run` to return."""
        self._stopped = True

    @property
    def idle(self) -> bool:
        """Whether nothing is left to deliver or to do before time passes."""
        return not self.queue

    def run(self, until: Callable[[], bool], *, ticks: int = 10_000) -> bool:
        """
        Move messages until a condition holds.

        :param until: the condition.
        :param ticks: jumps of the clock after which to give up.
        :returns: whether the condition held.
        """
        self._stopped = False
        while not until() and not self._stopped:
            if self.queue:
                name, action = self.queue.popleft()
                if name in self.parties:
                    self.apply(name, action)
                continue
            if ticks == 0:
                return False
            ticks -= 1
            self.now += self._tick
            for name, party in list(self.parties.items()):
                self.apply(name, lambda party=party: party.tick(self.now))  # type: ignore[misc]
        return until()

    def apply(self, name: str, action: Callable[[], Effects]) -> None:
        """Let a party act, log what it refuses, and carry out what it wants."""
        try:
            effects = action()
        except LateError as error:
            log.debug('%s refused: %s', name, error)
            return
        except MessageError as error:
            self.refused.append((name, error))
            log.warning('%s refused: %s', name, error)
            return
        for note in effects.notes:
            self.notes[name] = note
            log.info('%s: %s', name, note)
        for message in effects.messages:
            self.post(message)
        for job in effects.jobs:
            self.begin(name, job)

    def begin(self, name: str, job: Job) -> None:
        """Queue a party's job."""
        self._later(name, lambda: self._work(name, job))

    def post(self, message: Message) -> None:
        """Deliver a message to everyone but its sender."""
        sender, to = message.sender, getattr(message, 'to', '')
        if not isinstance(message, PASSING):
            part = f'{message.guilty} {message.fault}' if isinstance(message, Blame) else to
            self.latched[sender, type(message), part] = message
        for name in (to,) if to in self.parties else self.parties:
            if name != sender:
                self.deliver(name, message)

    def deliver(self, name: str, message: Message) -> None:
        """Queue a message for a party that takes it."""
        if type(message) in self.parties[name].takes and getattr(message, 'to', name) == name:
            self._later(name, lambda: self.parties[name].handle(message, self.now))

    def _later(self, name: str, action: Callable[[], Effects]) -> None:
        self.queue.append((name, action))

    def _work(self, name: str, job: Job) -> Effects:
        party = self.parties[name]
        try:
            run = self.stopwatch.timed(job.name, job.run)
            result = run(lambda progress: self._report(name, progress), lambda: self._stopped)
        except FdrlError as error:
            result = error
        return party.finish(job, result, self.now)
