# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Random schedules of who drops out of a round and when, and what has to come of each.

A round ends with the exact sum of the survivors if the threshold of hospitals stay to the end;
else nothing is decrypted, and it ends when those who dropped out come back.
"""

from collections import Counter
from enum import IntEnum
from typing import Unpack

from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.protocol.message import (
    MaskedUpdate,
    Message,
    Phase,
    Reveal,
    RoundKey,
    Settle,
    Shares,
)
from fdrl_ros.federation.protocol.party import Effects, Job
from fdrl_ros.federation.virtual import VirtualOptions
from fdrl_ros.policy import decode_weights, NetworkShape
import numpy as np
from support.federation_bench import Bench
from support.shuffled_federation import ShuffledFederation

CHUNKED = NetworkShape(states=4, actions=3, hidden=(800,))
"""A network whose update takes two ciphertexts."""

TICK = 10.0
PATIENCE = 100
"""Ticks within which a round is over or waits: more than all of its deadlines."""

HURRY = 0.4
HURRIED = 1500
"""Seconds after which the lost come back, where the clock runs on all the while."""


class Stage(IntEnum):
    """When a hospital is lost: its last word was that of the stage before."""

    BEFORE_KEYS = 0
    BEFORE_SHARES = 1
    BEFORE_TRAINING = 2
    BEFORE_SENDING = 3
    WHILE_SENDING = 4
    BEFORE_SIGNING = 5
    BEFORE_REVEALING = 6
    AFTER_REVEALING = 7
    NEVER = 8


_NEXT_WORD = {
    Stage.BEFORE_KEYS: RoundKey,
    Stage.BEFORE_SHARES: Shares,
    Stage.BEFORE_SENDING: MaskedUpdate,
    Stage.WHILE_SENDING: MaskedUpdate,
    Stage.BEFORE_SIGNING: Settle,
    Stage.BEFORE_REVEALING: Reveal,
    Stage.AFTER_REVEALING: Reveal,
}


class DroppingFederation(ShuffledFederation):
    """Loses hospitals on a schedule."""

    def __init__(
        self, seed: int, schedule: dict[str, Stage], *, hurry: float = 0.0, tick: float = TICK
    ) -> None:
        super().__init__(seed, hurry=hurry, tick=tick)
        self.schedule = dict(schedule)
        self.messages: list[Message] = []
        self.lost: list[str] = []

    def post(self, message: Message) -> None:
        """Deliver a message, unless its sender is lost before it could say it."""
        name = message.envelope.sender
        stage = self.schedule.get(name, Stage.NEVER)
        due = isinstance(message, _NEXT_WORD.get(stage, ()))
        if isinstance(message, MaskedUpdate):
            due = due and message.chunk == (stage is Stage.WHILE_SENDING)
        if due and stage is not Stage.AFTER_REVEALING:
            self._lose(name)
        if name not in self.parties:
            return
        self.messages.append(message)
        super().post(message)
        if due:
            self._lose(name)

    def _work(self, name: str, job: Job) -> Effects:
        if job.name == 'train' and self.schedule.get(name) is Stage.BEFORE_TRAINING:
            self._lose(name)
            return Effects()
        return super()._work(name, job)

    def _lose(self, name: str) -> None:
        del self.schedule[name]
        self.lost.append(name)
        self.leave(name)


def draw_schedule(seed: int, hospitals: int) -> dict[str, Stage]:
    """Draw who is lost and when: as often few as many."""
    rng = np.random.default_rng([hospitals, seed])
    names = [f'hospital_{i}' for i in range(1, hospitals + 1)]
    threshold = 2 * hospitals // 3 + 1
    few = rng.random() < 0.6
    count = rng.integers(0, hospitals - threshold + 1 if few else hospitals + 1)
    # At one of the stages, or at any.
    stages = rng.integers(0, Stage.NEVER, hospitals)
    if rng.random() < 0.3:
        stages[:] = stages[0]
    lost = rng.permutation(names)[:count]
    return {str(name): Stage(stage) for name, stage in zip(lost, stages, strict=False)}


def run_schedule(seed: int, hospitals: int, **options: Unpack[VirtualOptions]) -> Counter[str]:
    """
    Run a round on a random schedule, and check all that has to come of it.

    :param options: of the federation, such as how many neighbours each hospital has.
    :returns: what happened, in numbers to be summed.
    """
    schedule = draw_schedule(seed, hospitals)
    driver = DroppingFederation(seed, schedule)
    bench = DroppingBench(hospitals, driver, **options)
    graph = bench.roster.neighbourhoods
    stages = {name: schedule.get(name, Stage.NEVER) for name in bench.names}

    def reached(stage: Stage) -> list[str]:
        return [name for name in bench.names if stages[name] > stage]

    threshold, survivors = bench.roster.threshold, reached(Stage.WHILE_SENDING)
    ended = bench.run(lambda: bench.key_authority.round == 1, ticks=PATIENCE)
    abandoned = ended and bench.key_authority.state.released.rolled_back
    through = ended and not abandoned
    if graph.is_complete:
        assert through == (len(reached(Stage.BEFORE_REVEALING)) >= threshold)
    elif not through:
        # Those who stayed were too few for a sum, for somebody's secrets, or as witnesses.
        stayed = reached(Stage.BEFORE_REVEALING)
        witnesses = graph.witnesses & set(stayed)
        few = len(stayed) < threshold or len(witnesses) < graph.agreeing
        assert few or graph.lacking(bench.names, stayed)
    driver.schedule.clear()
    if not through:
        assert not bench.decrypted
        if len(reached(Stage.BEFORE_SIGNING)) < threshold:
            survivors = bench.names  # nothing was settled: there is another attempt with all
    for name in driver.lost:
        bench.join(name)
    assert bench.run(ticks=PATIENCE)
    if abandoned:  # survivors did not reveal for as long as training may take
        assert reached(Stage.BEFORE_REVEALING) != reached(Stage.WHILE_SENDING)
        return Counter({'schedules': 1, 'rounds that were abandoned': 1})
    check_ending(bench)
    if graph.is_complete:
        assert set(contributors(bench)) == set(survivors)
    elif through:
        assert set(contributors(bench)) <= set(survivors)
    return Counter(
        {
            'schedules': 1,
            'hospitals lost': len(driver.lost),
            'rounds that went through': through,
            'rounds that went through with losses': through and bool(driver.lost),
            'rounds that went on when hospitals came back': not through,
            'messages': len(driver.messages),
        }
    )


def run_hurried(seed: int, hospitals: int, **options: Unpack[VirtualOptions]) -> Counter[str]:
    """
    Run a round whose deadlines pass while messages are on their way, also of who drops out.

    Who survives is up to chance; the sum is exact all the same.
    """
    schedule = draw_schedule(seed, hospitals)
    driver = DroppingFederation(seed, schedule, hurry=HURRY, tick=1.0)
    bench = DroppingBench(hospitals, driver, **options)
    bench.run(lambda: bench.is_over() or driver.now > HURRIED, ticks=HURRIED)
    driver.schedule.clear()
    driver.hurry = 0.0
    for name in driver.lost:
        bench.join(name)
    assert bench.run(ticks=HURRIED)
    if not bench.decrypted:
        return Counter({'hurried': 1, 'abandoned': 1})
    check_ending(bench)
    late = len(bench.names) - len(driver.lost) > len(contributors(bench))
    return Counter({'hurried': 1, 'left out for being late': late})


class DroppingBench(Bench):
    """A federation in memory that loses hospitals."""

    driver: DroppingFederation

    def __init__(
        self, hospitals: int, driver: DroppingFederation, **options: Unpack[VirtualOptions]
    ) -> None:
        super().__init__(None, hospitals, 1, shape=CHUNKED, driver=driver, **options)
        assert self.scheme.ciphertexts == 2
        self.decrypted = self.spy_on_decryption()


def contributors(bench: Bench) -> tuple[str, ...]:
    """Return whose updates are in the policy that the hospitals hold, all the same one."""
    parties = [bench.parties.get(name) for name in bench.names]
    policies = [party.policy for party in parties if isinstance(party, Hospital)]
    (found,) = {policy.contributors for policy in policies if policy}
    assert len({policy.digest for policy in policies if policy}) == 1
    return found


def check_ending(bench: DroppingBench) -> None:
    """Check that a round ended with exactly the sum of its contributors, and nothing else."""
    driver = bench.driver
    assert bench.aggregator.phase is Phase.FINISHED
    # One sum was decrypted, once.
    assert len(bench.decrypted) == bench.scheme.ciphertexts
    policy = next(p.policy for p in driver.parties.values() if isinstance(p, Hospital))
    assert policy is not None and policy.envelope.round == 1 and not policy.rolled_back
    weights = decode_weights(policy.weights, bench.layout.n_parameters)
    np.testing.assert_array_equal(weights, bench.exact(contributors(bench)))
    # Nobody revealed for two sets, or trained twice.
    sets: dict[str, set[bytes]] = {}
    for message in driver.messages:
        if isinstance(message, Reveal):
            sets.setdefault(message.envelope.sender, set()).add(message.settle_digest)
    assert all(len(each) == 1 for each in sets.values())
    assert all(learner.trained in ([], [1]) for learner in bench.learners.values())
