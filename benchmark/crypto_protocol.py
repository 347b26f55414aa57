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
from dataclasses import replace
import hashlib
import itertools
from pathlib import Path
import tempfile
import time
from typing import Any, TypeVar

from benchmarking import Work
from crypto_work import Attempt, identity, REAL, Round, SEED, SETTINGS, threshold, Updates
from fdrl_ros.crypto.he.schemes import choose_scheme
from fdrl_ros.crypto.keys.signing import verify
from fdrl_ros.crypto.masking.merkle import root_and_paths
from fdrl_ros.crypto.masking.round_secret import KEY_BYTES
from fdrl_ros.crypto.masking.share_sealing import (
    check_parcel,
    deal,
    open_parcel,
    own_keys,
    PARCEL_BYTES,
    seal_shares,
)
from fdrl_ros.crypto.masking.sharing import Recovery, SHARE_BYTES
from fdrl_ros.federation.protocol.message import Message
from fdrl_ros.federation.protocol.party import Effects, Job, Party
from fdrl_ros.federation.settings import RoundSettings
from fdrl_ros.federation.virtual import SERVERS, VirtualFederation
from fdrl_ros.learner.learner import TrainingProgress, TrainingResult
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.chain import DIGEST, Head
import numpy as np

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

    def forget(self, round: int) -> None:
        """Erase nothing: nothing is private."""

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

    def start(self, now: float) -> Effects:
        """Begin."""
        return self._told(lambda: self.party.start(now))

    def handle(self, message: Message, now: float) -> Effects:
        """Take a message."""
        return self._told(lambda: self.party.handle(message, now))

    def finish(self, job: Job, result: Any, now: float) -> Effects:
        """Take the result of a job."""
        return self._told(lambda: self.party.finish(job, result, now))

    def tick(self, now: float) -> Effects:
        """Let time pass."""
        return self._told(lambda: self.party.tick(now))

    def _told(self, step: Callable[[], Effects]) -> Effects:
        effects = self._timed(step)
        self.sent += sum(len(message.to_bytes()) for message in effects.messages)
        jobs = (each if each.name == 'train' else self._job(each) for each in effects.jobs)
        return Effects(effects.messages, tuple(jobs), effects.notes)

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
    :param bounded: whether the key authority bounds each update, as it does by default.
    """

    def __init__(
        self, folder: Path | None, shape: NetworkShape, hospitals: int, *, bounded: bool = True
    ) -> None:
        self.clocked: dict[str, Clocked] = {}
        super().__init__(
            {f'hospital_{each:03d}': KnownStep(each, shape) for each in range(hospitals)},
            shape.draw(np.random.default_rng(SEED)),
            shape.layout,
            directory=folder and Path(tempfile.mkdtemp(dir=folder)),
            encryption=replace(SETTINGS, projections=SETTINGS.projections * bounded),
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


def upload(shape: NetworkShape, hospitals: int, *, bounded: bool = True) -> int:
    """Return the bytes of all messages that a hospital sends in a round."""
    federation = Federation(None, shape, hospitals, bounded=bounded)
    federation.play()
    return max(federation.clocked[name].sent for name in federation.learners)


class Member:
    """
    One hospital among so many, at each step of a round; a few others' parcels stand for all.

    :param n_parameters: of the network.
    :param members: how many hospitals there are, this one included.
    """

    def __init__(self, n_parameters: int, members: int) -> None:
        self.attempt = Attempt(members)
        self._name, *others = self.attempt.names
        self._others = len(others)
        keys = self.attempt.keys()
        self._parcels: dict[str, tuple[bytes, bytes, bytes, bytes]] = {}
        for name in others[: REAL - 1]:
            secrets = self.attempt.secrets[name]
            sealed = [*seal_shares(secrets, keys).values()]
            root, paths = root_and_paths(sealed)
            place = keys.holders(name).index(self._name)
            signature = identity(name).sign(root)
            self._parcels[name] = sealed[place], paths[place], root, signature
        self._scheme = choose_scheme(n_parameters, members, SETTINGS.bits)

    def publish(self) -> None:
        """Derive the keys of this round for everybody."""
        self.attempt.forget(self._name)
        own_keys(self.attempt.secrets[self._name], self.attempt.graph)

    def share(self) -> None:
        """Share the secrets, and check and open what others shared."""
        mine, ours, keys = self._name, self.attempt.secrets[self._name], self.attempt.keys()
        root, _ = root_and_paths([*seal_shares(ours, keys).values()])
        identity(mine).sign(root)
        deal(ours, keys)  # for the share that it holds itself
        for name in itertools.islice(itertools.cycle(self._parcels), self._others):
            parcel, path, root, signature = self._parcels[name]
            verify(identity(name).public, signature, root)
            check_parcel(keys, name, mine, parcel, path, root)
            open_parcel(keys, name, mine, parcel, ours.sealing(name))

    def mask(self) -> None:
        """Agree with everybody on a mask, and add them up."""
        self.attempt.net_mask(self._name, self._scheme)


class KeyAuthority:
    """
    The key authority among so many hospitals, none of which drops out; it bounds no update.

    :param n_parameters: of the network.
    :param members: how many hospitals there are.
    """

    def __init__(self, n_parameters: int, members: int) -> None:
        self._attempt = Attempt(members)
        self._round = Round(Updates.alike(n_parameters, members))
        slots = self._round.slots(0)
        self._sent = [self._round.encrypt(slots, np.zeros_like(slots))] * members
        name = self._attempt.names[0]
        dealt = deal(self._attempt.secrets[name], self._attempt.keys())
        self._shares = {holder: pair.self_seed for holder, pair in dealt.items()}
        self._seed = self._attempt.secrets[name].self_seed

    def release(self) -> None:
        """Look at each update, restore what masks are left, add, decrypt, unmask, average."""
        names = self._attempt.names
        self._round.inspect(self._sent)
        recovery = Recovery(threshold(len(names)), names, names)
        if {recovery.recover(self._shares) for _ in names} != {self._seed}:
            raise RuntimeError('another secret was restored than was shared')
        mask = self._attempt.leftover_mask(self._round.scheme)
        slots = self._round.decrypt(self._round.add(self._sent))
        self._round.masked(slots, -mask)
        self._round.mean(slots)  # these updates had no mask


def seconds_of(step: Callable[[], object]) -> float:
    """Return the seconds that a step takes."""
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def hospital(n_parameters: int, members: int, *, shares: bool = True) -> Work:
    """
    Return work that is one hospital's keys and masks, and times it.

    :param shares: whether it shares its secrets too.
    """
    member = Member(n_parameters, members)

    def work() -> float:
        seconds = seconds_of(member.publish) + seconds_of(member.mask)
        return seconds + seconds_of(member.share) if shares else seconds

    return work


def key_authority(n_parameters: int, members: int) -> Work:
    """Return work that is the key authority's part of a round, and times it."""
    party = KeyAuthority(n_parameters, members)
    return lambda: seconds_of(party.release)


def member_upload(n_parameters: int, members: int) -> int:
    """
    Return the bytes of what a hospital makes in a round in which nobody drops out, without bounds.

    Ciphertexts, two public keys for every other member, the hash of its self seed, a parcel for
    every member, and a share of each member's self seed; without names, digests, signatures of
    messages, and ledger.
    """
    scheme = choose_scheme(n_parameters, members, SETTINGS.bits)
    return (
        scheme.ciphertexts * scheme.ciphertext_bytes
        + 2 * (members - 1) * KEY_BYTES
        + DIGEST
        + members * (PARCEL_BYTES + SHARE_BYTES)
    )
