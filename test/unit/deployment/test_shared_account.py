# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A hospital of two federations has one budget, whatever it trains in either of them."""

from contextlib import closing
import shutil

from fdrl_ros.crypto.keys.keystore import make_federation, NewFederation
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import (
    LEDGER,
    ledger_spent,
    open_ledger,
    open_records,
    open_training,
)
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.prepare import check_accounts, prepare
from fdrl_ros.errors import BudgetExceededError, PrivacyError, SettingError
from fdrl_ros.experiments.training import train_alone, train_federation
from fdrl_ros.learner.home import ledger_words
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from fdrl_ros.privacy.ledger.account import parts
from fdrl_ros.privacy.ledger.content import read_content
from fdrl_ros.runtime.durable import make_private_directory
import pytest
from support.small_run import TINY_PLAN

PLAN = Plan().changed({**TINY_PLAN, 'home': {'epochs': 1, 'candidates': 'global, personal'}})
NAME = 'hospital_1'
WHOLE = epsilon_pld([(2.0, 0.5, 6), (10.0, 1.0, 1)], 1e-4)
"""Epsilon of both rounds, fine-tuning, and the choice."""


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
    layout = prepare(tmp_path_factory.mktemp('federations') / 'knee', PLAN)
    open_records(layout, NAME, PLAN)
    return layout.directory


@pytest.fixture
def federations(prepared, tmp_path):
    """Return the directories of two federations that trust the same hospital."""
    for name in ('knee', 'hip'):
        shutil.copytree(prepared, tmp_path / name)
    return [Layout(tmp_path / name) for name in ('knee', 'hip')]


def plan_of(tmp_path, budget=8.0):
    """Return the hospital's settings, the same in both federations."""
    account = str(tmp_path / 'account of {hospital}')
    return PLAN.changed({'privacy': {'account': account, 'budget': budget}})


def begin(layout, plan):
    records = open_records(layout, NAME, plan)
    start = load_policy(layout.pretrained).weights
    return open_training(layout.party(NAME), NAME, plan, records, start=start)


def trained(layout, plan):
    """Train both rounds and the home policy; return the weights of the rounds."""
    weights = load_policy(layout.pretrained).weights
    with closing((trainer := begin(layout, plan)).ledger):
        for round in (1, 2):
            trainer.check_affordable(round)
            weights = trainer.train(
                weights, round, report=lambda told: None, stopped=lambda: False
            ).weights
        trainer.home(weights, 2)
    return weights


def test_rounds_and_home_policies_of_both_federations_are_in_the_account(federations, tmp_path):
    plan = plan_of(tmp_path)
    for layout in federations:
        trained(layout, plan)
        with open_ledger(layout.party(NAME), NAME, plan) as ledger:
            stages = [ledger_words(each.round) for each in ledger.chain.entries]
            assert stages == ['1', '2', 'home 2', 'choice 2']
            assert ledger.epsilon() == pytest.approx(WHOLE)
    chain = read_content(tmp_path / f'account of {NAME}').chain
    assert [part.blocks for part in parts(chain)] == [4, 4]
    both = epsilon_pld([(2.0, 0.5, 12), (10.0, 1.0, 2)], 1e-4)
    assert chain.epsilon() == pytest.approx(both) and WHOLE < both < 2 * WHOLE
    assert ledger_spent(federations[0], NAME, plan).epsilon == pytest.approx(WHOLE)


def test_federation_that_the_rest_of_the_budget_does_not_pay_for_is_not_begun(
    federations, tmp_path, caplog
):
    plan = plan_of(tmp_path, budget=1.01 * WHOLE)
    trained(federations[0], plan)
    with pytest.raises(PrivacyError, match='left of its shared account does not pay') as refused:
        begin(federations[1], plan)
    assert str(tmp_path) not in str(refused.value)  # it reaches other parties
    assert 'of other federations, epsilon' in caplog.text and str(tmp_path) in caplog.text
    with open_ledger(federations[1].party(NAME), NAME, plan) as ledger:
        assert ledger.chain.head.entries == 0


def test_federations_that_began_together_end_at_the_budget(federations, tmp_path):
    plan = plan_of(tmp_path, budget=1.01 * WHOLE)
    late = begin(federations[1], plan)
    trained(federations[0], plan)
    with closing(late.ledger), pytest.raises(BudgetExceededError):
        late.check_affordable(1)
    assert late.ledger.chain.head.entries == 0


def test_hospitals_of_one_plan_have_accounts_of_their_own(federations, tmp_path):
    plan, (layout, _) = plan_of(tmp_path), federations
    for name in plan.hospitals:
        open_records(layout, name, plan)
    policies = tmp_path / 'run' / 'policies'
    policies.mkdir(parents=True)
    train_federation(layout, plan, policies)
    for name in plan.hospitals:
        chain = read_content(tmp_path / f'account of {name}').chain
        (part,) = parts(chain)
        assert part.ledger == str(layout.party(name) / LEDGER) and part.blocks == 4
        assert chain.epsilon() == ledger_spent(layout, name, plan).epsilon


def test_account_changes_nothing_of_what_is_trained(federations, tmp_path):
    one, other = federations
    assert (trained(one, PLAN) == trained(other, plan_of(tmp_path))).all()


def test_hospital_does_not_leave_its_account_by_a_change_of_settings(federations, tmp_path):
    plan, (layout, _) = plan_of(tmp_path), federations
    begin(layout, plan).ledger.close()
    trained(layout, PLAN)
    account, ledger = tmp_path / f'account of {NAME}', layout.party(NAME) / LEDGER
    assert [each.blocks for each in parts(read_content(account).chain)] == [
        read_content(ledger).chain.head.entries
    ]


def test_comparison_with_training_alone_is_not_charged(federations, tmp_path):
    plan, (layout, _) = plan_of(tmp_path, budget=1.01 * WHOLE), federations
    trained(layout, plan)
    assert train_alone(layout, NAME, plan) == pytest.approx(WHOLE)
    (part,) = parts(read_content(tmp_path / f'account of {NAME}').chain)
    assert part.blocks == 4


def test_account_whose_place_depends_on_the_working_directory_is_refused():
    with pytest.raises(SettingError, match='an absolute path'):
        PLAN.changed({'privacy': {'account': 'account.sqlite'}})


@pytest.mark.parametrize(
    ('account', 'words'),
    [
        ('{}/{{hopsital}}', 'no other brace'),
        ('{}/nowhere/{{hospital}}', 'a folder that exists'),
        ('{}', 'a folder that exists'),
    ],
)
def test_an_account_that_cannot_be_opened_is_refused(tmp_path, account, words):
    with pytest.raises(SettingError, match=words):
        check_accounts(PLAN.changed({'privacy': {'account': account.format(tmp_path)}}))


def test_a_directory_is_prepared_for_hospitals_whose_accounts_are_on_other_hosts(tmp_path):
    plan = PLAN.changed({'privacy': {'account': '/on/another/host/{hospital}'}})
    assert Plan.load(prepare(tmp_path / 'run', plan).plan).privacy.account


def test_one_account_for_all_hospitals_is_warned_of_and_it_may_be_moved(tmp_path, caplog):
    plans = [
        PLAN.changed({'privacy': {'account': str(tmp_path / name)}})
        for name in ('{hospital}', 'all', 'moved')
    ]
    for plan in plans:
        caplog.clear()
        layout = prepare(tmp_path / 'run', plan)
        check_accounts(plan)
        warned = 'all hospitals charge the account' in caplog.text
        assert warned == ('{' not in plan.privacy.account)
        assert Plan.load(layout.plan).privacy.account == plan.privacy.account


def test_hospitals_of_a_speciality_begin_from_a_released_policy_and_keep_accounts(tmp_path):
    account = str(tmp_path / 'account of {hospital}')
    plan = PLAN.changed(
        {'federation': {'hospitals': 5}, 'home': {'epochs': 0}, 'privacy': {'account': account}}
    )
    members = ('hospital_1', 'hospital_3', 'hospital_5')
    everybody, some = (
        Layout(tmp_path / 'all' / 'federation'),
        Layout(tmp_path / 'some' / 'federation'),
    )
    for layout in (everybody, some):
        make_private_directory(layout.directory.parent)
        (layout.directory.parent / 'policies').mkdir()
    prepare(everybody.directory, plan)
    for name in plan.hospitals:
        open_records(everybody, name, plan)
    train_federation(everybody, plan, tmp_path / 'all' / 'policies')
    released = tmp_path / 'all' / 'policies' / 'global_2.npz'
    make_private_directory(some.directory)
    shutil.copy2(released, some.pretrained)
    make_federation(some.keys, NewFederation(dict.fromkeys(members, 8)))
    prepare(some.directory, plan)
    for name in members:
        shutil.copy2(everybody.records(name), some.records(name))
    train_federation(some, plan, tmp_path / 'some' / 'policies')
    began = load_policy(tmp_path / 'some' / 'policies' / 'global_0.npz').weights
    assert (began == load_policy(released).weights).all()
    for name in plan.hospitals:
        chain = read_content(tmp_path / f'account of {name}').chain
        times = 2 if name in members else 1
        assert [part.blocks for part in parts(chain)] == [2] * times
        assert chain.epsilon() == pytest.approx(epsilon_pld([(2.0, 0.5, 4 * times)], 1e-4))
