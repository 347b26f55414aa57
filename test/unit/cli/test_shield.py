# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The commands of `fdrl shield`, each as small as it goes: tables, files, exit codes."""

import json

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.cli.robot import shield
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import save_policy
from fdrl_ros.errors import PolicyError
from fdrl_ros.experiments.studies.shield import attack
from fdrl_ros.experiments.studies.shield.adversary import Tally
from fdrl_ros.experiments.studies.shield.cost import by_expert, cost, newest_policies
from fdrl_ros.selector import ShieldSettings
from fdrl_ros.shield.proof import Finding
import numpy as np
import pytest


def fdrl(*words):
    return CliRunner().invoke(main, ['shield', *(str(each) for each in words)])


@pytest.fixture
def one_procedure(monkeypatch):
    for place in (shield, attack):
        monkeypatch.setattr(place, 'PROCEDURE_NAMES', ('retraction',))


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """Return a run with two global policies and that of a hospital."""
    path = tmp_path_factory.mktemp('run')
    (path / 'policies').mkdir()
    plan, rng = Plan({'learner': {'hidden': 4}}), np.random.default_rng(0)
    for name in ('global_2', 'global_10', 'hospital_1'):
        weights = rng.standard_normal(plan.network.layout.n_parameters).astype(np.float32)
        save_policy(path / f'policies/{name}.npz', weights, plan)
    return path


def test_to_verify_says_that_every_claim_holds(monkeypatch, tmp_path):
    # Of the tables alone: test/unit/shield checks the claims on a procedure.
    monkeypatch.setattr(shield, 'PROCEDURE_NAMES', ())
    done = fdrl('verify', '--fine', 1, '--json', tmp_path / 'found.json')
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / 'found.json').read_text())['findings']
    assert [each['claim'] for each in found] == ['tables'] * 2
    assert all(each['holds'] and each['cells'] > 100_000 for each in found)
    assert 'NO' not in done.output


def test_a_claim_that_fails_is_shown_and_ends_the_command(monkeypatch):
    bad = Finding('estimator: reach', 5, -0.25, {'short of kind': 0.25})
    monkeypatch.setattr(shield, 'proofs', lambda *_: iter([('wide', 10.0, bad)]))
    done = fdrl('verify')
    assert done.exit_code == 1
    assert 'NO' in done.output and "'short of kind': 0.25" in done.output


def test_to_attack_finds_no_step_above_the_hard_stop(one_procedure, monkeypatch, tmp_path):
    monkeypatch.setattr(attack, 'ATTACKERS', ('down',))  # test/unit/shield has them all
    done = fdrl('attack', '--steps', 120, '--json', tmp_path / 'found.json')
    assert done.exit_code == 0, done.output
    tallies = json.loads((tmp_path / 'found.json').read_text())['tallies']
    assert {each['arm'] for each in tallies} == {'kinematic', 'dynamic', 'loop'}
    assert sum(each['steps'] for each in tallies if each['shield']) >= 120
    assert not any(each['above_stop'] for each in tallies if each['shield'])
    for arm in ('kinematic', 'dynamic', 'loop'):
        assert sum(each['contact'] for each in tallies if each['arm'] == arm) > 0
    assert 'in contact' in done.output


def test_an_attack_that_touches_nothing_does_not_pass(one_procedure, monkeypatch):
    monkeypatch.setattr(attack, 'ATTACKERS', ('down',))
    monkeypatch.setattr(Tally, 'add', lambda self, *_: setattr(self, 'steps', self.steps + 99))
    done = fdrl('attack', '--steps', 60)
    assert done.exit_code == 1
    assert 'Nothing was tested' in done.output


@pytest.mark.parametrize(
    'words', [('attack', '--steps', 0), ('attack', '--steps', 2000), ('verify', '--fine', 0)]
)
def test_too_little_to_test_anything_is_refused(words):
    done = fdrl(*words)
    assert done.exit_code != 0
    assert 'at least 2100' in done.output or 'x>=1' in done.output


def test_an_attack_that_gets_through_ends_the_command(one_procedure, monkeypatch):
    monkeypatch.setattr(attack, 'ATTACKERS', ('down',))
    monkeypatch.setattr(attack, 'ShieldSettings', lambda **_: ShieldSettings(active=False))
    assert fdrl('attack', '--steps', 600).exit_code == 1


def test_the_cost_of_a_run_is_that_of_its_newest_policies(run, tmp_path):
    done = fdrl(
        *('cost', run, '--procedures', 'retraction', '--patients', 4),
        *('--levels', '1', '--json', tmp_path / 'found.json'),
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / 'found.json').read_text())['found']
    assert len(found) == 3 * 3
    names = [
        'expert',
        *[str(run / f'policies/{each}.npz') for each in ('global_10', 'hospital_1')],
    ]
    assert list(dict.fromkeys(each['who'] for each in found)) == names
    assert not any(each['vetoes'] for each in found if each['shield'] == 'off')


def test_an_expert_without_the_shield_succeeds_and_is_vetoed_by_a_narrow_one():
    off = cost('retraction', by_expert, ShieldSettings(active=False), 6, 0.5)
    assert (off.successes, off.vetoes, off.patients) == (6, 0, 6)
    strict = ShieldSettings(keep_limit=True, usual_stiffest=35_000.0)
    assert cost('retraction', by_expert, strict, 6, 0.5).vetoes > 0


def test_a_policy_file_is_taken_as_it_is_and_an_empty_directory_is_refused(run, tmp_path):
    assert newest_policies(run / 'policies/global_2.npz') == [run / 'policies/global_2.npz']
    with pytest.raises(PolicyError, match='policies'):
        newest_policies(tmp_path)


@pytest.mark.parametrize('words', [['--levels', 'much'], ['--levels', '2'], ['--patients', 0]])
def test_what_cannot_be_asked_is_refused(words):
    assert fdrl('cost', *words).exit_code == 1


@pytest.mark.parametrize(
    ('name', 'words'),
    [('proofs', ['verify']), ('attack_study', ['attack']), ('cost_study', ['cost'])],
)
def test_a_command_that_keeps_nothing_does_not_say_that_it_goes_on(name, words, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(shield, name, interrupted)
    done = fdrl(*words)
    assert done.exit_code == 130
    assert done.stderr.splitlines()[-1] == (
        'fdrl: stopped; nothing is kept: the same command begins anew'
    )
