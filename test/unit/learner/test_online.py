# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Online learning: what is collected, what each round is charged, and how it goes on."""

import contextlib
from dataclasses import replace
import hashlib
import itertools
import math
import os
import shutil

from fdrl_ros.errors import (
    BudgetExceededError,
    CheckpointError,
    KeyFileError,
    LedgerCorruptError,
    PrivacyError,
    RecordsError,
    TrainingStopped,
)
from fdrl_ros.learner.online import GymCollector, OnlineSettings, OnlineTrainer
from fdrl_ros.learner.online_files import PatientLog, RoundCheckpoints
from fdrl_ros.learner.records.sampling import Replay
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
import gymnasium
import numpy as np
import pytest
from support.killing import die, killed
from support.small_hospital import ledger_of
from support.small_hospital import PRIVACY as SMALL

SHAPE = NetworkShape(states=4, actions=2, hidden=(8,))
ONLINE = OnlineSettings(rounds=6, patients=5, updates=1.0, warm_up=10, exploration_rounds=4)
LEARNER = LearnerSettings(transitions_per_patient=4, target_period=5)
PRIVACY = replace(SMALL, batch=4, budget=40.0)
START = SHAPE.draw(np.random.default_rng(0))
SOURCE = NoiseSource.seeded(7)


class Site:
    """A hospital that can be taken down and set up again."""

    def __init__(self, directory, online=ONLINE, learner=LEARNER, privacy=PRIVACY, source=SOURCE):
        directory.mkdir(exist_ok=True)
        self.ledger = ledger_of(directory, 'hospital_1', privacy)
        self.collector = GymCollector(gymnasium.make('CartPole-v1'), seed=3)
        setup = TrainingSetup(SHAPE, learner, privacy, self.ledger, source)
        self.trainer = OnlineTrainer(setup, self.collector, online, directory)

    def train(self, start=START, **options):
        try:
            return self.trainer.train(start, **options)
        finally:
            self.head = self.ledger.chain.head.entries, self.ledger.chain.history()
            self.ledger.close()


def test_each_round_is_charged_with_its_own_sampling_probability(tmp_path):
    site = Site(tmp_path / 'a')
    seen = []
    site.trainer.train(START, report=lambda told, weights: seen.append(told))
    # Rounds 2 to 6 have 10, 15, ... patients and 5 new ones, so 5 steps, each.
    assert site.ledger.chain.history() == tuple((2.0, 4 / n, 5, 1) for n in (10, 15, 20, 25, 30))
    never_the_last = epsilon_pld([(2.0, 4 / 30, 25)], 1e-3)
    assert site.ledger.epsilon() > never_the_last
    assert [(told.round, told.step, told.steps) for told in seen] == [
        (i, i, 6) for i in range(1, 7)
    ]
    assert seen[0].epsilon == 0.0 and seen[-1].epsilon >= site.ledger.epsilon()


def test_transitions_as_units_take_a_step_for_each_new_one(tmp_path):
    privacy = replace(PRIVACY, unit='transition', delta=1e-5, budget=math.inf)
    learner = replace(LEARNER, n_step=3)
    site = Site(tmp_path / 'a', learner=learner, privacy=privacy)
    site.trainer.train(START)
    with PatientLog(tmp_path / 'a' / 'patients.turns', site.trainer.identity) as log:
        lengths = [turn.records.n_transitions for turn in iter(log.next_stored, None)]
    assert len(lengths) == 6 and sum(lengths) == site.trainer.transitions
    history = site.ledger.chain.history()
    assert [each.steps for each in history] == lengths  # already the first round has enough
    assert [each.sampling_probability for each in history] == pytest.approx(4 / np.cumsum(lengths))
    assert {each.group for each in history} == {3}


@pytest.mark.parametrize(
    'replay, stop_at, averaging',
    [('poisson', 4, 0.0), ('poisson', 9, 0.5), ('prioritised', 17, 0.0)],
)
def test_stopped_anywhere_it_goes_on_to_the_very_same_weights(
    tmp_path, replay, stop_at, averaging
):
    settings = {
        'learner': replace(LEARNER, replay=replay, averaging=averaging),
        'privacy': replace(PRIVACY, budget=math.inf),
    }
    undisturbed = Site(tmp_path / 'a', **settings).train()
    asked = iter(range(1000))
    with pytest.raises(TrainingStopped):
        Site(tmp_path / 'b', **settings).train(stopped=lambda: next(asked) >= stop_at)
    np.testing.assert_array_equal(Site(tmp_path / 'b', **settings).train(), undisturbed)


def test_with_a_secret_key_it_goes_on_until_its_user_erases_the_rounds(tmp_path):
    """Nobody acknowledges its rounds, so nothing is erased before its user says so."""

    def site(rounds):
        source = NoiseSource.secure(tmp_path / 'noise.key')
        return Site(tmp_path / 'a', replace(ONLINE, rounds=rounds), source=source), source

    first, older = site(4)[0].train(), tmp_path / 'older.key'
    np.testing.assert_array_equal(site(4)[0].train(anew=True), first)
    done, source = site(4)
    shutil.copy(tmp_path / 'noise.key', older)
    source.forget(4)
    np.testing.assert_array_equal(done.train(), first)
    spent = done.head
    with pytest.raises(PrivacyError, match='erased'):
        site(4)[0].train(anew=True)
    more, _ = site(6)
    more.train()
    assert more.head[1][:3] == spent[1] and len(more.head[1]) == 5
    shutil.copy(older, tmp_path / 'noise.key')
    with pytest.raises(KeyFileError, match='older than the newest checkpoint'):
        site(6)[0].train()


def die_at_the_next_draw():
    Replay.draw = die


def die_in_the_next_write():
    pwrite = os.pwrite

    def half(file, data, at):
        pwrite(file, data[: len(data) // 2], at)
        die()

    os.pwrite = half


# Where a process is killed in round 4: before which call of a method, and how. Nothing is learned
# in round 1. How many rounds are charged then.
KILLS = {
    'collecting': (GymCollector, 'collect', 4, die, 2),
    'half of the patients written': (PatientLog, 'append', 4, die_in_the_next_write, 2),
    'before the charge': (Ledger, 'reserve', 3, die, 2),
    'before the first step': (Ledger, 'reserve', 3, die_at_the_next_draw, 3),
    'before the state is kept': (RoundCheckpoints, 'save', 3, die, 3),
    'half of the state written': (RoundCheckpoints, 'save', 3, die_in_the_next_write, 3),
}


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    """Weights after all rounds, and the ledger's entries and charges."""
    site = Site(tmp_path_factory.mktemp('online') / 'a')
    weights = site.train()
    return weights, site.head


@pytest.mark.parametrize('owner, method, call, kill, charged', KILLS.values(), ids=KILLS)
def test_kill_9_costs_one_round_changes_nothing_and_charges_once(
    tmp_path, monkeypatch, undisturbed, owner, method, call, kill, charged
):
    original, calls = getattr(owner, method), itertools.count(1)

    def counted(*given, **named):
        if next(calls) == call:
            kill()
        return original(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, counted)
        assert killed(lambda: Site(tmp_path / 'b').train())
    site, learned = Site(tmp_path / 'b'), learned_rounds(monkeypatch)
    assert len(site.ledger.chain.history()) == charged
    np.testing.assert_array_equal(site.train(), undisturbed[0])
    assert learned == [4, 5, 6]
    assert site.head == undisturbed[1]


def learned_rounds(monkeypatch):
    """Return the rounds that are learned from now on."""
    learned, reserve = [], Ledger.reserve
    monkeypatch.setattr(
        Ledger,
        'reserve',
        lambda self, **named: learned.append(named['round']) or reserve(self, **named),
    )
    return learned


def run_to(directory, last, **settings):
    """Let a hospital learn some rounds, and take it down."""
    with pytest.raises(TrainingStopped):
        site = Site(directory, **settings)
        collect = site.collector.collect

        def until(policy, share, first, count):
            if first >= last * count:
                raise TrainingStopped('enough')
            return collect(policy, share, first, count)

        site.collector.collect = until
        site.train()
    return directory


def harm(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize('damaged, first', [((1,), 5), ((0,), 6), ((0, 1), 2)])
def test_damaged_checkpoints_cost_time_and_nothing_else(
    tmp_path, monkeypatch, undisturbed, damaged, first
):
    home = run_to(tmp_path / 'b', 5)
    for parity in damaged:
        harm(home / f'turn_{parity}.checkpoint')
    learned = learned_rounds(monkeypatch)
    site = Site(home)
    np.testing.assert_array_equal(site.train(), undisturbed[0])
    assert learned == list(range(first, 7))
    assert site.head == undisturbed[1]


def test_rounds_can_be_run_anew_for_their_reports_at_no_cost(tmp_path, undisturbed):
    home = run_to(tmp_path / 'b', 4)
    resumed, anew = [], []
    Site(home).train(report=lambda told, weights: resumed.append(told.round))
    site = Site(home)
    weights = site.train(report=lambda told, weights: anew.append(told.round), anew=True)
    assert (resumed, anew) == ([5, 6], [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(weights, undisturbed[0])
    assert site.head == undisturbed[1]


def test_more_rounds_go_on_and_fewer_give_what_they_gave(tmp_path, monkeypatch, undisturbed):
    short = Site(tmp_path / 'a', online=replace(ONLINE, rounds=4)).train()
    home = run_to(tmp_path / 'b', 5)
    np.testing.assert_array_equal(Site(home, online=replace(ONLINE, rounds=4)).train(), short)
    learned = learned_rounds(monkeypatch)
    np.testing.assert_array_equal(Site(home).train(), undisturbed[0])
    assert learned == [6]


@pytest.mark.parametrize(
    'changes',
    [
        {'learner': replace(LEARNER, learning_rate=0.5)},
        {'privacy': replace(PRIVACY, clip_norm=2.0)},
        {'source': NoiseSource.seeded(8)},
        {'start': START + 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_checkpoint_of_something_else_is_refused_and_left(tmp_path, changes):
    start = changes.pop('start', START)
    home = run_to(tmp_path / 'b', 4)
    kept = [home / name for name in ('patients.turns', 'turn_0.checkpoint', 'turn_1.checkpoint')]
    before = [path.read_bytes() for path in kept]
    with pytest.raises(CheckpointError, match='other records, settings, starting weights'):
        Site(home, **changes).train(start)
    assert [path.read_bytes() for path in kept] == before


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    home = run_to(tmp_path / 'b', 4)
    path = home / 'turn_0.checkpoint'
    content = path.read_bytes()[:-32].replace(b'checkpoint 2', b'checkpoint 9')
    path.write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(CheckpointError, match='another version'):
        Site(home).train()


def test_a_ledger_that_is_older_than_the_checkpoint_is_refused(tmp_path):
    home = run_to(tmp_path / 'b', 3)
    shutil.copy(home / 'hospital_1.sqlite', tmp_path / 'backup')
    run_to(home, 5)
    shutil.copy(tmp_path / 'backup', home / 'hospital_1.sqlite')
    with pytest.raises(LedgerCorruptError, match=r'has 2 entries and had [34]: .*turn_.*put back'):
        Site(home).train()


@pytest.mark.parametrize('kept', ['with the states', 'without them'])
def test_patients_that_were_learned_from_are_not_collected_again(tmp_path, kept):
    home = run_to(tmp_path / 'b', 3)
    shutil.copy(home / 'patients.turns', tmp_path / 'backup')
    run_to(home, 5)
    shutil.copy(tmp_path / 'backup', home / 'patients.turns')
    if kept == 'without them':
        for parity in (0, 1):
            (home / f'turn_{parity}.checkpoint').unlink()
    with pytest.raises(RecordsError, match='the patients of 3 rounds, and round [45] was learned'):
        Site(home).train()


def test_only_its_owner_reads_what_is_kept(tmp_path):
    home = run_to(tmp_path / 'b', 4)
    assert {path.stat().st_mode & 0o777 for path in home.iterdir()} == {0o600}


def test_it_stops_before_the_budget_is_passed_and_keeps_what_it_has(tmp_path):
    site = Site(tmp_path / 'a', privacy=replace(PRIVACY, unit='transition', budget=0.52))
    seen = []
    with pytest.raises(BudgetExceededError):
        site.trainer.train(START, report=lambda told, weights: seen.append(weights))
    assert 0.0 < site.ledger.epsilon() <= 0.52
    assert not np.array_equal(seen[-1], START)


def test_the_same_number_is_the_same_patient_whatever_was_before():
    collector, policy = GymCollector(gymnasium.make('CartPole-v1'), seed=3), SHAPE.policy(START)
    together = collector.collect(policy, 0.3, 5, 4)
    alone = collector.collect(policy, 0.3, 7, 1)
    own = slice(together.starts[2], together.starts[3])
    np.testing.assert_array_equal(together.states[own], alone.states)
    np.testing.assert_array_equal(together.actions[own], alone.actions)
    assert together.patients[2] == alone.patients[0] == 'patient_7'


@pytest.mark.parametrize(
    'privacy, online, error',
    [
        ({'budget': 2.0}, {}, BudgetExceededError),
        ({'batch': 31}, {}, PrivacyError),
        ({}, {'warm_up': 31}, PrivacyError),
        ({'delta': 0.04}, {}, PrivacyError),
    ],
)
def test_rounds_that_cannot_all_be_trained_are_refused_before_anybody_is_treated(
    tmp_path, privacy, online, error
):
    """Thirty patients in six rounds."""
    site = Site(
        tmp_path / 'a', online=replace(ONLINE, **online), privacy=replace(PRIVACY, **privacy)
    )
    site.collector.collect = None
    with pytest.raises(error):
        site.train()
    assert site.head == (0, ())


@pytest.mark.parametrize('share, enough', [(1.001, True), (0.999, False)])
def test_what_the_rounds_cost_is_known_before_they_are_run(tmp_path, undisturbed, share, enough):
    privacy = replace(PRIVACY, budget=share * epsilon_pld(undisturbed[1][1], PRIVACY.delta))
    site = Site(tmp_path / 'a', privacy=privacy)
    with contextlib.nullcontext() if enough else pytest.raises(BudgetExceededError):
        site.trainer.check_affordable()
    site.ledger.close()


def test_who_learned_nothing_is_told_so(tmp_path):
    """How many transitions there will be, nobody knows before."""
    privacy = replace(PRIVACY, unit='transition', delta=1e-4)
    site = Site(tmp_path / 'a', online=replace(ONLINE, warm_up=100_000), privacy=privacy)
    with pytest.raises(PrivacyError, match='nothing was learned'):
        site.train()


def test_a_patient_who_returns_is_refused_before_that_is_kept(tmp_path, undisturbed):
    site = Site(tmp_path / 'a')
    collect = site.collector.collect
    site.collector.collect = lambda policy, share, first, count: collect(policy, share, 0, count)
    with pytest.raises(RecordsError, match='twice'):
        site.train()
    np.testing.assert_array_equal(Site(tmp_path / 'a').train(), undisturbed[0])
