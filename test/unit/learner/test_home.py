# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The home policy: what it costs, how it is chosen, and that it can be interrupted anywhere."""

from contextlib import contextmanager
from dataclasses import replace
import math
from pathlib import Path
import pickle

from fdrl_ros.errors import (
    NoiseErasedError,
    PrivacyError,
    RecordsError,
    SettingError,
    TrainingStopped,
)
from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.learner.home import (
    agreement,
    ALONE,
    best_of,
    choice_charge,
    clipped_sum,
    GLOBAL,
    home_charges,
    HOME_ROUNDS,
    HomeSetup,
    HomeTrainer,
    ledger_words,
    OWN_LAYERS,
    PERSONAL,
)
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import HomeSettings, LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.policy.layout import Tensor, TensorLayout
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
from hypothesis import given, strategies
import numpy as np
import pytest
from support.killing import die, killed
from support.small_hospital import joined, ledger_of, records_of, trained
from support.small_hospital import PRIVACY as SMALL

SHAPE = NetworkShape(states=4, actions=3, hidden=(6,))
LEARNER = LearnerSettings(epochs=2, transitions_per_patient=4, target_period=3)
PRIVACY = replace(SMALL, batch=8, budget=20.0)
START = SHAPE.draw(np.random.default_rng(0))
RELEASED = SHAPE.draw(np.random.default_rng(1))
HOME = HomeSettings(epochs=3, learning_rate=0.02)
STEPS = 5  # of a local epoch: 40 patients, 8 at a time


def like(policy, patients: int = 40) -> Records:
    """Return patients who were treated as a policy does."""
    made = records_of(np.random.default_rng(0).integers(1, 9, size=patients), (4, 3))
    return replace(made, actions=policy.q_values(made.states).argmax(axis=1))


@contextmanager
def ward(directory: Path, home=HOME, privacy=PRIVACY, records=None, start=START, averaging=0.0):
    """Open a hospital's ledger and trainer, and close it again."""
    directory.mkdir(exist_ok=True)
    with ledger_of(directory, 'hospital_1', privacy) as ledger:
        learner = replace(LEARNER, averaging=averaging)
        setup = TrainingSetup(SHAPE, learner, privacy, ledger, NoiseSource.seeded(7))
        records = records or like(SHAPE.policy(RELEASED))
        yield HomeTrainer(setup, records, directory / 'checkpoint', HomeSetup(home, start))


def made(directory: Path, *, own=None, round: int = 6, **named):
    with ward(directory, **named) as trainer:
        return trainer.home(RELEASED, round, own=own), trainer.ledger.chain.history()


# The choice.


@given(
    strategies.lists(
        strategies.tuples(*[strategies.floats(-1.0, 1.0)] * 3), min_size=1, max_size=12
    ),
    strategies.floats(1e-3, 10.0),
    strategies.integers(0, 11),
)
def test_one_patient_less_moves_the_sum_of_the_choice_by_at_most_the_clip(rows, clip, gone):
    rows = np.array(rows)
    without = np.delete(rows, gone % len(rows), axis=0)
    moved = np.linalg.norm(clipped_sum(rows, clip) - clipped_sum(without, clip))
    assert moved <= clip
    assert np.linalg.norm(clipped_sum(rows, clip)) <= clip * len(rows)


@pytest.mark.parametrize('undefined', [math.nan, math.inf, -math.inf])
def test_a_patient_whose_score_is_undefined_adds_nothing(undefined):
    rows = np.array([[0.1, 0.0], [undefined, 0.2], [0.05, -0.1]])
    np.testing.assert_array_equal(clipped_sum(rows, 1.0), clipped_sum(rows[[0, 2]], 1.0))


def test_differences_within_the_clip_are_summed_as_they_are():
    rows = np.random.default_rng(0).uniform(-0.1, 0.1, size=(50, 3))
    np.testing.assert_allclose(clipped_sum(rows, 1.0), rows.sum(axis=0), rtol=0, atol=1e-12)
    # A long one keeps its direction.
    longer = clipped_sum(np.array([[3.0, 4.0]]), 0.5)
    np.testing.assert_allclose(longer, [0.3, 0.4], rtol=2e-3)


@pytest.mark.parametrize(
    'leads, chosen',
    [
        ({}, GLOBAL),
        ({PERSONAL: 0.0}, GLOBAL),
        ({PERSONAL: -0.1, ALONE: -0.2}, GLOBAL),
        ({PERSONAL: math.nan}, GLOBAL),
        ({PERSONAL: math.nan, ALONE: 0.01}, ALONE),
        ({PERSONAL: 0.1, OWN_LAYERS: 0.2, ALONE: 0.15}, OWN_LAYERS),
    ],
)
def test_the_greatest_lead_is_chosen_and_ties_go_to_the_global_policy(leads, chosen):
    assert best_of(leads) == chosen


def test_a_score_is_the_share_of_ticks_where_the_policy_does_as_recorded(tmp_path):
    records = records_of([3, 1, 5], (4, 3))
    policy = SHAPE.policy(START)
    with ward(tmp_path, records=records, privacy=replace(PRIVACY, batch=2)) as trainer:
        found = agreement(trainer, policy)
    for patient, (first, last) in enumerate([(0, 3), (3, 4), (4, 9)]):
        same = [policy(records.states[i]) == records.actions[i] for i in range(first, last)]
        assert found[patient] == pytest.approx(np.mean(same), abs=1e-15)


@given(strategies.integers(0, 10))
def test_a_patient_s_score_is_the_same_whoever_else_is_there(tmp_path_factory, gone):
    parts = [records_of([length], (4, 3), first=length) for length in range(1, 12)]
    policy, small = SHAPE.policy(START), replace(PRIVACY, batch=2)
    folder = tmp_path_factory.mktemp('ward')
    with ward(folder, records=joined(parts), privacy=small) as trainer:
        together = agreement(trainer, policy)
        trainer.use_records(joined(parts[:gone] + parts[gone + 1 :]))
        np.testing.assert_array_equal(np.delete(together, gone), agreement(trainer, policy))


@pytest.mark.parametrize('better', [True, False])
def test_the_policy_that_does_as_the_hospital_recorded_is_chosen(tmp_path, better):
    other = SHAPE.draw(np.random.default_rng(2))
    quiet = replace(HOME, candidates='own_layers', choice_noise=1.0, choice_clip=1.0)
    records = like(SHAPE.policy(other if better else RELEASED), patients=400)
    found, _ = made(tmp_path, own=other, home=quiet, records=records)
    lead = agreed(records, other) - agreed(records, RELEASED)
    # Noise of one clip over 400 patients; the lead of each is within the clip.
    assert found.leads[OWN_LAYERS] == pytest.approx(lead, abs=4.5 / 400 + 2e-3)
    assert found.chosen == (OWN_LAYERS if better else GLOBAL)
    np.testing.assert_array_equal(found.weights, other if better else RELEASED)


def agreed(records: Records, weights) -> float:
    same = SHAPE.policy(weights).q_values(records.states).argmax(axis=1) == records.actions
    starts = records.starts
    patients = zip(starts[:-1], starts[1:], strict=True)
    return float(np.mean([same[first:last].mean() for first, last in patients]))


# What it costs.


def test_fine_tuning_and_choice_are_charged_in_the_same_ledger_by_the_tight_accountant(tmp_path):
    with ward(tmp_path) as trainer:
        trained(trainer, START)
        found = trainer.home(RELEASED, 1)
        entries = trainer.ledger.chain.entries
    charges = [(2.0, 0.2, 5 * STEPS), (10.0, 1.0, 1)]
    assert found.epsilon == pytest.approx(epsilon_pld(charges, 1e-3), abs=1e-9)
    rounds = [entry.round for entry in entries]
    assert rounds == [1, 1, *[HOME_ROUNDS + 1] * 3, 2 * HOME_ROUNDS + 1]
    assert [ledger_words(each) for each in rounds[1:]] == [
        '1',
        *['home 1'] * 3,
        'choice 1',
    ]
    assert not found.notes
    assert list(found.leads) == [PERSONAL]


def test_the_choice_is_charged_before_its_noise_is_drawn(tmp_path, monkeypatch):
    with ward(tmp_path) as trainer:
        counts = []
        drawn = Trainer.choice_noise

        def noise(self, round, size):
            counts.append((len(self.ledger.chain.entries), self.ledger.chain.history()[-1]))
            return drawn(self, round, size)

        monkeypatch.setattr(Trainer, 'choice_noise', noise)
        trainer.home(RELEASED, 6)
    assert counts == [(4, (10.0, 1.0, 1, 1))]


def test_alone_is_trained_from_the_public_start_once_for_all_rounds(tmp_path):
    home = replace(HOME, candidates='personal, alone', alone_epochs=4)
    with ward(tmp_path, home=home) as trainer:
        first = trainer.home(RELEASED, 1)
        spent = len(trainer.ledger.chain.entries)
        second = trainer.home(RELEASED, 2)
        entries = trainer.ledger.chain.entries
    assert list(first.leads) == [PERSONAL, ALONE]
    assert spent == 3 + 4 + 1
    assert len(entries) == spent + 3 + 1
    assert ledger_words(entries[3].round) == 'alone'
    assert second.epsilon > first.epsilon


def test_what_home_costs_is_known_before(tmp_path):
    home = replace(HOME, candidates='personal, alone', alone_epochs=4)
    _, history = made(tmp_path, home=home)
    with ward(tmp_path / 'other', home=home) as trainer:
        told = home_charges(LEARNER, PRIVACY, home, trainer.records)
    assert epsilon_pld(told, 1e-3) == pytest.approx(epsilon_pld(history, 1e-3), rel=1e-9)
    assert home_charges(LEARNER, PRIVACY, HomeSettings(), like(SHAPE.policy(START))) == ()


@pytest.mark.parametrize('epochs', [0, 1, 2])
def test_a_short_budget_pays_for_fewer_epochs_and_keeps_the_choice_back(tmp_path, epochs):
    choice = (10.0, 1.0, 1)
    budget = epsilon_pld([(2.0, 0.2, epochs * STEPS), choice] if epochs else [choice], 1e-3)
    privacy = replace(PRIVACY, budget=budget + 0.01)
    own = SHAPE.draw(np.random.default_rng(2))
    found, history = made(tmp_path, privacy=privacy, own=own)
    assert found.epsilon <= budget + 0.01
    assert len(history) == epochs + 1
    wanted = [PERSONAL, OWN_LAYERS] if epochs else [OWN_LAYERS]
    assert list(found.leads) == wanted
    words = f'fine-tuned for {epochs} of 3' if epochs else 'no candidate personal: epsilon'
    assert words in found.notes[0]
    again, repeated = made(tmp_path, privacy=privacy, own=own)
    assert (again.leads, again.chosen, repeated) == (found.leads, found.chosen, history)


def test_without_any_budget_the_global_policy_is_used_and_nothing_is_spent(tmp_path, caplog):
    privacy = replace(PRIVACY, budget=0.01)
    found, history = made(tmp_path, privacy=privacy, own=START)
    assert (found.chosen, found.leads, history) == (GLOBAL, {}, ())
    np.testing.assert_array_equal(found.weights, RELEASED)
    assert [note.split(':')[0] for note in found.notes] == [
        'no candidate personal',
        'nothing is chosen, global stays',
    ]
    assert 'hospital_1, home policy of round 6: nothing is chosen' in caplog.text


def test_with_transitions_as_units_a_stacked_step_is_charged_in_all_states_that_hold_it(tmp_path):
    privacy = replace(PRIVACY, unit='transition', delta=1e-4, budget=math.inf)
    learner = replace(LEARNER, frame_stack=3)
    with ledger_of(tmp_path, 'hospital_1', privacy) as ledger:
        setup = TrainingSetup(SHAPE, learner, privacy, ledger, NoiseSource.seeded(7))
        trainer = Trainer(setup, like(SHAPE.policy(START)), tmp_path / 'checkpoint')
        charge = choice_charge(trainer.mechanism, privacy, HOME)
        assert charge == (5.0, 1.0, 1, trainer.mechanism.group)
        assert charge.group > 1
        assert agreement(trainer, SHAPE.policy(START)).shape == (trainer.n_units,)


# Interruptions.


def same(one, other) -> bool:
    return np.array_equal(one.weights, other.weights) and (
        one.chosen,
        one.leads,
        one.epsilon,
        one.base,
    ) == (other.chosen, other.leads, other.epsilon, other.base)


def test_made_again_it_is_the_same_and_costs_nothing(tmp_path):
    first, history = made(tmp_path)
    again, repeated = made(tmp_path)
    assert same(first, again)
    assert repeated == history
    for file in ('checkpoint', 'home_checkpoint'):
        (tmp_path / file).unlink(missing_ok=True)
    without, repeated = made(tmp_path)
    assert same(first, without)
    assert repeated == history


@pytest.mark.parametrize(
    'stop_at, averaging', [(0, 0.0), (4, 0.0), (7, 0.0), (14, 0.0), (4, 0.6), (14, 0.6)]
)
def test_stopped_anywhere_it_goes_on_to_the_very_same_policy(tmp_path, stop_at, averaging):
    undisturbed, history = made(tmp_path / 'a', averaging=averaging)
    asked, both = iter(range(1000)), {'averaging': averaging}
    with ward(tmp_path / 'b', **both) as trainer, pytest.raises(TrainingStopped):
        trainer.home(RELEASED, 6, stopped=lambda: next(asked) >= stop_at)
    resumed, repeated = made(tmp_path / 'b', **both)
    assert same(undisturbed, resumed)
    assert repeated == history


@pytest.mark.parametrize(
    'block, owner, method',
    [
        (1, Trainer, 'replay'),
        (1, Checkpoint, 'save'),
        (0, Trainer, 'choice_noise'),
        (0, Checkpoint, 'save'),
    ],
)
def test_kill_9_between_reserve_and_release_pays_once(tmp_path, monkeypatch, block, owner, method):
    undisturbed, history = made(tmp_path / 'a')
    reserve, kind = Ledger.reserve, 1 if block else 2

    def reserved(self, **named):
        granted = reserve(self, **named)
        if (named['round'] // HOME_ROUNDS, named['block']) == (kind, block):
            setattr(owner, method, die)
        return granted

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, 'reserve', reserved)
        assert killed(lambda: made(tmp_path / 'b'))
    with ward(tmp_path / 'b') as trainer:
        assert len(trainer.ledger.chain.entries) == (2 if block else 4)
    resumed, repeated = made(tmp_path / 'b')
    assert same(undisturbed, resumed)
    assert repeated == history


def test_the_newest_checkpoint_tells_of_the_choice(tmp_path):
    made(tmp_path)
    with ward(tmp_path) as trainer:
        head = trainer.ledger.chain.head
        assert str(head) in (tmp_path / 'home_checkpoint').read_bytes().decode('latin-1')


def test_progress_is_told_as_home_and_by_the_round(tmp_path):
    seen = []
    with ward(tmp_path) as trainer:
        trainer.home(RELEASED, 6, report=seen.append)
    assert [(each.stage, each.round, each.step, each.steps) for each in seen] == [
        ('home', 6, 5, 15),
        ('home', 6, 10, 15),
        ('home', 6, 15, 15),
    ]


# Tensors in another order, and refusals.


def test_weights_of_another_order_of_the_tensors_are_put_into_order():
    parts = [Tensor('a', (2,)), Tensor('b', (2, 2)), Tensor('c', (1,))]
    ours, other = TensorLayout.of(parts), TensorLayout.of(parts, ['c', 'b'])
    weights = np.arange(7.0)
    turned = other.reordered(weights, ours)
    np.testing.assert_array_equal(turned, [2, 3, 4, 5, 6, 0, 1])
    np.testing.assert_array_equal(ours.reordered(turned, other), weights)


def test_tensors_that_are_frozen_at_home_stay_as_the_global_policy_has_them(tmp_path):
    frozen = replace(HOME, frozen='shared, value', choice_noise=1.0)
    records = like(SHAPE.policy(SHAPE.draw(np.random.default_rng(3))), patients=400)
    found = {}
    for name, home in (('some', frozen), ('all', replace(HOME, choice_noise=1.0))):
        with ward(tmp_path / name, home=home, records=records) as trainer:
            trainer.home(RELEASED, 6)
            state = Checkpoint.read(tmp_path / name / 'home_checkpoint', trainer.ledger)
        found[name] = SHAPE.layout.split(state.weights.astype(np.float32) - RELEASED)
    moved = {name: bool(np.abs(each).max()) for name, each in found['some'].items()}
    assert {name for name, each in moved.items() if each} == {'advantage.weight', 'advantage.bias'}
    assert all(np.abs(each).max() for each in found['all'].values())


def test_candidates_that_there_are_not_are_refused():
    with pytest.raises(SettingError, match='candidates.*persnal.*did you mean personal'):
        HomeSettings(candidates='global, persnal')
    assert HomeSettings(candidates=' alone ,personal, global').names == (PERSONAL, ALONE)


def test_a_choice_without_noise_is_refused_where_there_is_a_budget(tmp_path):
    loud = replace(HOME, choice_noise=0.0)
    with pytest.raises(PrivacyError, match='set home.choice_noise'), ward(tmp_path, home=loud):
        pass
    found, _ = made(tmp_path / 'open', home=loud, privacy=replace(PRIVACY, budget=math.inf))
    assert math.isinf(found.epsilon)


def test_records_that_changed_since_are_refused(tmp_path):
    made(tmp_path)
    other = like(SHAPE.policy(START))
    with pytest.raises(PrivacyError, match='reserved with other inputs'):
        made(tmp_path, records=other)


def test_growing_records_are_refused(tmp_path):
    with ward(tmp_path) as trainer:
        trainer.records = None
        with pytest.raises(RecordsError, match='do not grow'):
            trainer.home(RELEASED, 6)


# Noise is erased once what it made is kept.


@pytest.mark.parametrize('killed_in', [None, 'keep', 'forget'])
def test_a_home_policy_that_is_kept_is_never_made_again(tmp_path, monkeypatch, killed_in):
    """Killed before it is kept it is made again, the very same; after that its noise is erased."""
    place, key = tmp_path / 'kept', tmp_path / 'noise.key'

    def keep(policy):
        place.write_bytes(pickle.dumps(policy))

    def kept():
        return pickle.loads(place.read_bytes()) if place.exists() else None

    def trained_at_home(hold=keep):
        with ledger_of(tmp_path, 'hospital_1', PRIVACY) as ledger:
            source = NoiseSource.secure(key)
            setup = TrainingSetup(SHAPE, LEARNER, PRIVACY, ledger, source)
            settings = replace(HOME, candidates='personal, alone', alone_epochs=4)
            home = HomeSetup(settings, START, None, hold, kept)
            records = like(SHAPE.policy(RELEASED))
            trainer = HomeTrainer(setup, records, tmp_path / 'checkpoint', home)
            return trainer.home(RELEASED, 6), ledger.chain.head

    unkept, spent = trained_at_home(hold=lambda policy: None)
    if killed_in:
        late = killed_in == 'forget'
        with monkeypatch.context() as patch:
            if late:
                patch.setattr(NoiseSource, 'forget', die)
            assert killed(lambda: trained_at_home(keep if late else die))
    assert place.exists() == (killed_in == 'forget')
    for _ in range(2):
        found, head = trained_at_home()
        assert head == spent and (found.leads, found.chosen) == (unkept.leads, unkept.chosen)
        np.testing.assert_array_equal(found.weights, unkept.weights)
        for number in (6, HOME_ROUNDS + 6, 2 * HOME_ROUNDS + 6, 3 * HOME_ROUNDS):
            with pytest.raises(NoiseErasedError):
                NoiseSource.secure(key).check_drawable(number)
        NoiseSource.secure(key).check_drawable(7)
