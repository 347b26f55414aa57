# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The home policy of a run: its file, what it costs in the ledger, and what is refused."""

from contextlib import closing
import json

from fdrl_ros.crypto.keys.keystore import NOISE_FILE
from fdrl_ros.deployment.ledger_inspection import inspect_hospital
from fdrl_ros.deployment.parties.hospital import HOME, open_ledger
from fdrl_ros.deployment.policy_file import load_home, load_policy
from fdrl_ros.errors import LedgerError, NoiseErasedError
from fdrl_ros.experiments.training import prepare_run, train_alone, train_federation
from fdrl_ros.learner.home import HOME_ROUNDS, ledger_words
from fdrl_ros.policy import digest_of
from fdrl_ros.privacy.noise_key import NoiseKey
from fdrl_ros.runtime.progress import Caller
import numpy as np
import pytest
from support.small_run import SMALL_PLAN

pytestmark = pytest.mark.usefixtures('quick_scrypt')
PLAN = SMALL_PLAN.changed(
    {
        'home': {
            **{'epochs': 2, 'choice_noise': 1.0, 'candidates': 'personal, own_layers'},
            **{'frozen': '', 'offsets': ''},
        },
        'federation': {'personal': 'advantage'},
    }
)


def played(directory, plan=PLAN, caller=None):
    layout = prepare_run(directory, plan)
    train_federation(layout, plan, directory / 'policies', caller or Caller())
    return layout


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """Return a run whose hospitals are at home, and its progress."""
    directory, seen = tmp_path_factory.mktemp('run'), []
    return directory, played(directory, caller=Caller(seen.append)), seen


def test_each_hospital_keeps_its_home_policy_and_how_it_was_chosen(run):
    directory, layout, seen = run
    last = load_policy(directory / 'policies/global_1.npz')
    for name in PLAN.hospitals:
        kept = load_policy(layout.party(name) / HOME)
        assert kept.policy(PLAN).n_parameters == last.weights.size
        with closing(open_ledger(layout.party(name), name, PLAN)) as ledger:
            assert kept.home['epsilon'] == ledger.epsilon() > 0
            stages = [ledger_words(each.round) for each in ledger.chain.entries]
        assert stages == [*['1'] * PLAN.learner.epochs, *['home 1'] * 2, 'choice 1']
        assert kept.home['base'] == digest_of(last.weights).hex()
        assert set(kept.home['leads']) == {'personal', 'own_layers'}
        assert not (directory / f'policies/{name}.npz').exists(), 'it was not to be released'
    home = [each for each in seen if each.what == 'home']
    assert {each.who for each in home} == set(PLAN.hospitals)
    assert home[-1].done == home[-1].total


def test_who_trains_alone_spends_as_much_as_who_federates_at_home_too(run):
    _, layout, _ = run
    name = PLAN.hospitals[0]
    spent = train_alone(layout, name, PLAN)
    with closing(open_ledger(layout.party(name), name, PLAN)) as ledger:
        assert spent == ledger.epsilon()
        stages = [ledger_words(each.round) for each in ledger.chain.entries]
    alone = layout.directory / 'alone' / name
    with closing(open_ledger(alone, name, PLAN)) as ledger:
        assert [ledger_words(each.round) for each in ledger.chain.entries] == stages


def test_going_on_with_a_run_that_is_over_makes_the_same_at_no_cost(run):
    directory, layout, _ = run
    files = [layout.party(name) / HOME for name in PLAN.hospitals]
    before = [load_policy(each) for each in files]
    played(directory)
    for one, other in zip(before, map(load_policy, files), strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
        assert one.home == other.home


def test_noise_of_rounds_and_home_is_erased_once_the_home_policy_is_kept(tmp_path):
    plan = PLAN.changed({'federation': {'noise': 'secure'}})
    layout = played(tmp_path, plan)
    path = layout.party('hospital_3') / NOISE_FILE
    key = NoiseKey(path)
    for number in (1, HOME_ROUNDS + 1, 2 * HOME_ROUNDS + 1, 3 * HOME_ROUNDS):
        with pytest.raises(NoiseErasedError):
            key.secret(number)
    assert key.secret(2)
    # Without the file it cannot be chosen again, and what was paid is not paid twice.
    (layout.party('hospital_3') / HOME).unlink()
    with closing(open_ledger(layout.party('hospital_3'), 'hospital_3', PLAN)) as ledger:
        spent = ledger.chain.head
    played(tmp_path, plan)
    made = load_home(layout.party('hospital_3') / HOME)
    assert (made.round, made.chosen) == (1, 'global')
    assert any('erased' in note for note in made.notes)
    with closing(open_ledger(layout.party('hospital_3'), 'hospital_3', PLAN)) as ledger:
        assert ledger.chain.head == spent


@pytest.mark.parametrize('damage', [b'', b'no archive'])
def test_a_home_policy_that_is_missing_or_damaged_counts_as_not_kept(tmp_path, damage):
    assert load_home(tmp_path / HOME) is None
    (tmp_path / HOME).write_bytes(damage)
    assert load_home(tmp_path / HOME) is None


def test_the_rounds_are_the_same_with_and_without_a_home_policy(run, tmp_path):
    directory, _, _ = run
    plain = PLAN.changed({'home': {'epochs': 0}})
    layout = played(tmp_path, plain)
    one, other = (
        load_policy(each / 'policies/global_1.npz').weights for each in (directory, tmp_path)
    )
    np.testing.assert_array_equal(one, other)
    assert not (layout.party('hospital_1') / HOME).exists()


def test_a_released_home_policy_is_what_the_hospital_publishes(tmp_path):
    layout = played(tmp_path, PLAN.changed({'federation': {'release': True}}))
    for name in PLAN.hospitals:
        released = load_policy(tmp_path / f'policies/{name}.npz')
        np.testing.assert_array_equal(
            released.weights, load_policy(layout.party(name) / HOME).weights
        )


def test_a_ledger_older_than_what_was_made_at_home_is_refused(run, tmp_path):
    _, layout, _ = run
    name = 'hospital_1'
    party = layout.party(name)
    for file in ('checkpoint', 'home_checkpoint', 'state.sqlite'):
        (tmp_path / file).write_bytes((party / file).read_bytes())
    with closing(open_ledger(party, name, PLAN)) as ledger:
        heads = [str(ledger.chain.head_at(count)) for count in (1, len(ledger.chain.entries))]
    assert heads[1].encode() in (party / 'home_checkpoint').read_bytes()
    (tmp_path / 'checkpoint').unlink()
    (tmp_path / 'state.sqlite').unlink()
    with pytest.raises(LedgerError, match='a checkpoint was made with its head'):
        open_ledger(tmp_path, name, PLAN)
    found = inspect_hospital(layout, name, PLAN)
    assert not found.all_problems and 'its home checkpoint' in found.seen


def test_a_home_policy_s_file_is_read_as_any_policy_and_says_no_more_than_was_paid_for(run):
    _, layout, _ = run
    with np.load(layout.party('hospital_2') / HOME) as file:
        told = json.loads(str(file['home']))
    assert set(told) == {'round', 'base', 'chosen', 'leads', 'epsilon', 'notes'}
    assert HOME_ROUNDS == 10**9, 'numbers of the ledger are on disk'
