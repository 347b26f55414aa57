# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Whole rounds of the real parties in one process, as timed work.

Only two things are not as in the field: training is a known small step, which is not timed, and
the key authority does not try a policy on public patients. Everything else a round does is there
and is timed by party: keys, shares, masks, encryption, signing and checking every message, state
written durably, adding, decrypting, releasing.
"""

from collections.abc import Callable
import hashlib
from pathlib import Path
import tempfile
import time
from typing import Any, TypeVar

from crypto_work import SEED
from fdrl_ros.federation.protocol.message import Message
from fdrl_ros.federation.protocol.party import Job, Outcome, Party
from fdrl_ros.federation.settings import RoundSettings
from fdrl_ros.federation.virtual import SERVERS, VirtualFederation
from fdrl_ros.learner.learner import TrainingProgress, TrainingResult
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.chain import Head
import numpy as np
from turns import Work

SIZE = 500
"""Patients n_i of every hospital."""
EPOCHS = LearnerSettings().epochs
"""Entries that a round adds to a ledger."""
LINKS = EPOCHS * RoundSettings().rounds
"""Entries of a ledger after so many rounds as there are by default."""
Result = TypeVar('Result')


class KnownStep:
    """
    A hospital's learner that moves each weight by a step known to :meth:`delta`.

    With each update go as many links of its ledger as a federation of default length makes.

    :param number: of the hospital.
    """

    secure = False
    n_units = SIZE

    def __init__(self, number: int, shape: NetworkShape) -> None:
        self._number, self._shape = number, shape
        self._head = Head(0, bytes(32))
        self._links: list[bytes] = []
        self._charge(LINKS)

    def delta(self, round: int) -> np.ndarray:
        """Return what is learned in a round, shape (n_parameters,)."""
        rng = np.random.default_rng([SEED, self._number, round])
        return rng.uniform(-0.05, 0.05, self._shape.n_parameters).astype(np.float32)

    def verify_ledger(self, seen: Head, by: str) -> None:
        """Accept every head: this chain only grows."""

    def check_affordable(self, round: int) -> None:
        """Afford every round."""

    def train(
        self,
        weights: np.ndarray,
        round: int,
        *,
        report: Callable[[TrainingProgress], None],
        stopped: Callable[[], bool],
    ) -> TrainingResult:
        """Take the step of a round."""
        base = self._head
        self._charge(EPOCHS)
        links = b''.join(self._links)
        return TrainingResult(weights + self.delta(round), 1.0, *self._head, *base, links)

    def rounding(self, round: int, size: int) -> np.ndarray:
        """Return uniforms in (0, 1)."""
        return np.random.default_rng([SEED, self._number, round, 1]).uniform(1e-9, 1.0, size)

    def _charge(self, entries: int) -> None:
        first = self._head.entries
        added = [hashlib.sha256(b'%d' % each).digest() for each in range(first, first + entries)]
        *_, self._head = self._head.followed(b''.join(added))
        self._links = [*self._links, *added][-LINKS:]


class Clocked:
    """
    A party whose work is timed and whose messages are counted, otherwise itself.

    :param party: the real one.
    """

    def __init__(self, party: Party) -> None:
        self.party, self.takes = party, party.takes
        self.seconds, self.sent = 0.0, 0

    def start(self, now: float) -> Outcome:
        """Begin."""
        return self._told(lambda: self.party.start(now))

    def handle(self, message: Message, now: float) -> Outcome:
        """Take a message."""
        return self._told(lambda: self.party.handle(message, now))

    def finish(self, job: Job, result: Any, now: float) -> Outcome:
        """Take the result of a job."""
        return self._told(lambda: self.party.finish(job, result, now))

    def tick(self, now: float) -> Outcome:
        """Let time pass."""
        return self._told(lambda: self.party.tick(now))

    def _told(self, step: Callable[[], Outcome]) -> Outcome:
        outcome = self._timed(step)
        self.sent += sum(len(message.to_bytes()) for message in outcome.messages)
        jobs = (each if each.name == 'train' else self._job(each) for each in outcome.jobs)
        return Outcome(outcome.messages, tuple(jobs), outcome.notes)

    def _job(self, job: Job) -> Job:
        return Job(job.name, lambda *given: self._timed(lambda: job.run(*given)))

    def _timed(self, step: Callable[[], Result]) -> Result:
        begun = time.perf_counter()
        try:
            return step()
        finally:
            self.seconds += time.perf_counter() - begun


class Federation(VirtualFederation):
    """
    Real parties whose work is timed, and whole rounds of them.

    :param folder: for their state; without one it lies in memory.
    :param shape: of the network.
    :param hospitals: how many there are.
    """

    def __init__(self, folder: Path | None, shape: NetworkShape, hospitals: int) -> None:
        self.clocked: dict[str, Clocked] = {}
        super().__init__(
            {f'hospital_{each:03d}': KnownStep(each, shape) for each in range(hospitals)},
            shape.draw(np.random.default_rng(SEED)),
            shape,
            directory=folder and Path(tempfile.mkdtemp(dir=folder)),
        )
        self.driver.run(lambda: self.policy is not None)

    def join(self, name: str) -> None:
        """Start a party whose work is timed."""
        self.parties[name] = self.make(name)
        self.clocked[name] = Clocked(self.parties[name])
        self.driver.join(name, self.clocked[name])

    def play(self, rounds: int = 1) -> np.ndarray:
        """
        Play one round, until every hospital has its policy.

        :raises RuntimeError: if a message was refused.
        """
        for each in self.clocked.values():
            each.seconds, each.sent = 0.0, 0
        weights = super().play(rounds)
        if self.driver.refused:
            raise RuntimeError(f'refused: {self.driver.refused[0]}')
        return weights

    def seconds_for(self, name: str) -> float:
        """Return what the last round added to a hospital: its own part, and the servers'."""
        return sum(self.clocked[each].seconds for each in (name, *SERVERS))


def protocol(folder: Path | None, shape: NetworkShape, hospitals: int) -> Work:
    """
    Return work that is a round, and tells what it added to one hospital's training, s.

    That is the work of a hospital, the mean of all, and the wait for both servers.

    :param folder: for the state of the parties; without one it lies in memory.
    """
    federation = Federation(folder, shape, hospitals)

    def work() -> float:
        federation.play()
        return float(np.mean([federation.seconds_for(name) for name in federation.learners]))

    return work


def virtual_round(folder: Path, shape: NetworkShape, hospitals: int) -> float:
    """Return the seconds that a round of so many hospitals takes, one party after the other."""
    federation = Federation(folder, shape, hospitals)
    begun = time.perf_counter()
    federation.play()
    return time.perf_counter() - begun


def upload(shape: NetworkShape, hospitals: int) -> int:
    """Return the bytes of all messages that a hospital sends in a round."""
    federation = Federation(None, shape, hospitals)
    federation.play()
    return max(federation.clocked[name].sent for name in federation.learners)
