# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who steals a hospital's directory redraws no noise of a round that both servers acknowledged."""

from contextlib import ExitStack
import shutil

from fdrl_ros.errors import PrivacyError
from fdrl_ros.federation.protocol.message import LedgerHeads
from fdrl_ros.federation.protocol.party import Effects
from fdrl_ros.federation.virtual import VirtualFederation
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest
from support.federation_bench import Bench, SHAPE, START
from support.interception import Interception
from support.restored_hospital import NAME, run_to_policy
from support.small_hospital import ledger_of, PRIVACY, records_of

LEARNER = LearnerSettings(epochs=2, transitions_per_patient=2, hidden=5)


class RememberedNoise(Trainer):
    """A trainer that remembers what it drew, and what the key file was before each round."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.drawn: dict[tuple[int, int], np.ndarray] = {}
        self.held: dict[int, bytes] = {}

    def noise(self, round, step):
        key = self.checkpoint.with_name('noise.key').read_bytes()[:-32]
        self.held.setdefault(round, key[-64:-32])
        return self.drawn.setdefault((round, step), super().noise(round, step))


@pytest.fixture
def federation(tmp_path):
    """Return a federation of hospitals with secret noise."""
    with ExitStack() as stack:
        learners = {}
        for number in (1, 2, 3):
            name = f'hospital_{number}'
            folder = tmp_path / name
            folder.mkdir()
            ledger = stack.enter_context(ledger_of(folder, name, PRIVACY))
            source = NoiseSource.secure(folder / 'noise.key')
            records = records_of([3] * 10, (4, 3), first=100 * number)
            setup = TrainingSetup(SHAPE, LEARNER, PRIVACY, ledger, source)
            learners[name] = RememberedNoise(setup, records, folder / 'checkpoint')
        yield VirtualFederation(learners, START, SHAPE.layout)


def stolen(tmp_path, federation, folder):
    """Return the noise that a thief draws with a hospital's directory."""
    shutil.copytree(tmp_path / NAME, tmp_path / folder)
    thief = NoiseSource.secure(tmp_path / folder / 'noise.key')
    thief.bind(federation.learners[NAME].ledger)
    return lambda number, step: thief.gaussian('gradient', number, step, SHAPE.n_parameters)


def test_a_thief_redraws_no_noise_of_an_acknowledged_round(tmp_path, federation):
    """Before keys were erased, this attack gave the noise of every round since the first."""
    learner = federation.learners[NAME]
    federation.play(3)
    federation.driver.run(lambda: federation.parties[NAME].acknowledged)
    redrawn = stolen(tmp_path, federation, 'stolen')
    assert {round for round, _ in learner.drawn} == {1, 2, 3} == learner.held.keys()
    for round, step in learner.drawn:
        with pytest.raises(PrivacyError, match='erased'):
            redrawn(round, step)
    files = b''.join(each.read_bytes() for each in (tmp_path / 'stolen').iterdir())
    assert not any(secret in files for secret in learner.held.values())


def test_until_then_the_very_same_noise_is_drawn_again(tmp_path, federation):
    """The attack works on the round that is under way: so does a hospital that was killed."""
    heads = Interception(
        federation, LedgerHeads, change=lambda m: [m] if m.envelope.round < 2 else []
    )
    learner, driver = federation.learners[NAME], federation.driver
    driver.run(lambda: federation.parties[NAME].round == 2 and (2, 0) in learner.drawn)
    driver.run(lambda: federation.round == 2)
    driver.run(lambda: False, ticks=20)
    assert heads.messages
    redrawn = stolen(tmp_path, federation, 'stolen')
    for (round, step), noise in learner.drawn.items():
        if round == 2:
            np.testing.assert_array_equal(redrawn(round, step), noise)
        else:
            with pytest.raises(PrivacyError, match='erased'):
                redrawn(round, step)


@pytest.mark.parametrize('server', ['aggregator', 'key_authority'])
def test_a_round_is_erased_once_both_servers_acknowledged_the_ledger(tmp_path, server):
    bench = Bench(tmp_path, hospitals=4, rounds=2)
    learner = bench.learners[NAME]
    assert bench.run(lambda: bench.key_authority.round == 2)
    bench.kill(NAME)
    assert learner.trained == [1, 2] and learner.forgotten[-1] == 1
    heads = bench.driver.latched.pop((server, LedgerHeads, NAME))
    held = Interception(
        bench, LedgerHeads, change=lambda m: [m] if m.envelope.sender != server else []
    )
    bench.join(NAME)
    bench.wait(20)
    policy = bench.parties[NAME].policy  # it waits for what the key authority shows with a head
    assert (policy is None) == (server == 'key_authority') and learner.forgotten[-1] == 1
    later = [each for each in held.messages if (each.sender, each.to) == (server, NAME)]
    newest = [heads, *later][-1]
    bench.driver.deliver(NAME, newest)
    bench.wait(5)
    assert learner.forgotten[-1] == 2


def test_a_round_is_erased_before_the_next_one_begins(tmp_path):
    bench = Bench(tmp_path, hospitals=3, rounds=4)
    learner, events = bench.learners[NAME], []
    train, forget = learner.train, learner.forget
    learner.train = lambda weights, number, **named: (
        events.append(('train', number)) or train(weights, number, **named)
    )
    learner.forget = lambda number: events.append(('forget', number)) or forget(number)
    assert bench.run()
    bench.wait(5)
    assert learner.forgotten == [0, 1, 2, 3, 4]
    for round in (1, 2, 3, 4):
        assert ('forget', round - 1) in events[: events.index(('train', round))]
        assert ('forget', round) not in events[: events.index(('train', round))]


def test_a_hospital_that_still_trains_when_its_round_ends_is_not_cut_short(tmp_path):
    bench = Bench(tmp_path, hospitals=4, rounds=2)
    run_to_policy(bench, 1)
    learner, driver, late = bench.learners[NAME], bench.driver, []
    work = driver._work

    def slow(name, job):
        if name == NAME and not late:
            late.append(job)
            return Effects()
        return work(name, job)

    driver._work = slow
    run_to_policy(bench, 2)
    bench.wait(5)
    assert late and bench.parties[NAME].acknowledged and learner.forgotten[-1] == 1
    driver.apply(NAME, lambda: work(NAME, late[0]))
    assert learner.trained == [1, 2] and learner.forgotten[-1] == 2
