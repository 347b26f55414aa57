# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The command line on tiny runs: what it writes, how it goes on, what it refuses, its codes."""

from dataclasses import replace
import json
import os
from pathlib import Path
import shlex
import shutil
import signal
import stat

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.cli.options import flag_of
from fdrl_ros.crypto.he import schemes
from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity, ROSTER_FILE
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import ledger_spent, open_records
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.prepare import budget_words, prepare
from fdrl_ros.errors import RecordsError, StoreError
from fdrl_ros.experiments import run_directory
from fdrl_ros.experiments.reports.assessment import assess, evaluate_policies
from fdrl_ros.experiments.reports.run_table import render_text
from fdrl_ros.experiments.round_recorder import read_rounds
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.training import train_federation
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.learner.records.collection import CollectionSettings, HospitalSimulator
from fdrl_ros.learner.records.records import Records
from fdrl_ros.privacy.accountant.leakage_bounds import bounds_of_guarantee
from fdrl_ros.privacy.stated import stated
from fdrl_ros.resources import resource
from fdrl_ros.runtime import kernels
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.surgery.gym.state import STATE_SIZE
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.task import SurgeryTask
import numpy as np
import pytest
from support import pole
from support.metrics_files import read_csv, read_json
from support.small_run import TINY_PLAN
import yaml

TINY = {
    **TINY_PLAN,
    'value': {'features': 8, 'groups': 4, 'patients': 8, 'checked': 2, 'redraws': 16},
    'evaluation': dict.fromkeys(('patients', 'round_patients'), 3)
    | {'state_patients': 2, 'states_per_patient': 4, 'workers': 1},
}
SUMMARY = (
    'task learner world_hash world commit policies by_hospital epsilon ledger_problems delta unit '
    'attack_bounds disjoint_patients blamed epsilon_of_shared_patients '
    'delta_of_shared_patients sigma_m s epsilon_paper release rounds rounds_planned ended '
    'round_seconds he_seconds update_bytes peak_memory n_parameters seed versions'
)


def fdrl(*words):
    return CliRunner().invoke(main, [str(each) for each in words])


def same_policy(one, other):
    first, second = (load_policy(each / 'policies/global_2.npz').weights for each in (one, other))
    return (first == second).all()


@pytest.fixture(scope='module')
def plan_file(tmp_path_factory):
    path = tmp_path_factory.mktemp('plan') / 'tiny.yaml'
    path.write_text(yaml.safe_dump(TINY))
    return path


@pytest.fixture(scope='module')
def trained(tmp_path_factory, plan_file):
    runs = tmp_path_factory.mktemp('runs')
    result = fdrl('train', '--plan', plan_file, '--runs', runs, '--release')
    assert result.exit_code == 0, result.output
    return runs / 'latest', result.output


def test_every_setting_has_a_flag_and_the_plans_of_the_package_can_be_read():
    shown = ' '.join(fdrl('train', '--help').output.split())
    for group, settings in Plan.groups().items():
        for each in settings.describe():
            assert flag_of(group, each.name) in shown
            assert each.description.split()[0] in shown
    for path in resource('config/paper').glob('*.yaml'):
        Plan.load(path)


def test_version_is_that_of_the_package():
    assert fdrl('--version').output.startswith('fdrl, version ')
    assert fdrl('version').output.startswith('fdrl_ros ')


def test_a_run_writes_its_summary_table_and_plots(trained):
    run, output = trained
    summary = json.loads((run / 'summary.json').read_text())
    assert set(summary) == set(SUMMARY.split())
    # sigma_m = 2, C = 0.4, L = 4; order 2: 2 / (2 * 2^2).
    assert (summary['sigma_m'], summary['s'], summary['epsilon_paper']) == (2.0, 0.2, 0.25)
    for text in (output, (run / 'table.txt').read_text()):
        words = ' '.join(text.split())
        assert 'sigma_m = 2, s = sigma_m C / L = 0.2; epsilon_paper = 0.25' in words
    rows = ['expert', 'untrained', 'pretrained']
    assert list(summary['policies']) == [*rows, 'alone', 'global', 'selector']
    assert (
        summary['rounds'] == 2
        and summary['n_parameters']
        == load_policy(run / 'policies' / 'global_2.npz').layout.n_parameters
    )
    assert set(summary['epsilon']) == {'hospital_1', 'hospital_2', 'hospital_3'}
    assert all(0.0 < each < 8.0 for each in summary['epsilon'].values())
    assert summary['update_bytes'] > 0 and 0.0 < summary['he_seconds'] < 5.0
    assert 30.0 < summary['peak_memory'] < 30_000.0
    for name in ('success', 'learning', 'epsilon', 'force', 'selection'):
        assert (run / 'plots' / f'{name}.png').read_bytes().startswith(b'\x89PNG')


def test_seeded_noise_is_labelled_where_people_look(trained):
    run, output = trained
    for text in (output, (run / 'table.txt').read_text()):
        assert 'NOT PRIVATE' in text and 'not a medical device' in text
        assert 'release their own policies by choice' in ' '.join(text.split())
    assert 'NOT PRIVATE' in fdrl('privacy', 'show', run).output


@pytest.fixture
def no_plots(monkeypatch):
    monkeypatch.setattr(run_directory, 'draw_all', lambda *_: None)


def test_a_run_says_what_no_attack_on_its_releases_exceeds(trained):
    run, output = trained
    summary = json.loads((run / 'summary.json').read_text())
    for name, found in summary['attack_bounds'].items():
        alone = bounds_of_guarantee(summary['epsilon'][name], summary['delta'])
        assert 0.5 < found['auc'] <= alone.auc and 0.01 < found['tpr'] <= alone.tpr
        assert 0.0 < found['information'] <= alone.information
    most = max(each['auc'] for each in summary['attack_bounds'].values())
    assert f'AUC {most:.3f}' in ' '.join(output.split())


@pytest.mark.usefixtures('no_plots')
def test_evaluated_again_epsilons_add_up_for_patients_of_several_hospitals(trained, tmp_path):
    run, output = trained
    assert json.loads((run / 'summary.json').read_text())['epsilon_of_shared_patients'] is None
    assert 'several hospitals' not in output + fdrl('privacy', 'show', run).output
    copy = tmp_path / 'run'
    shutil.copytree(run.resolve(), copy)
    roster, path = Layout(copy / 'federation').roster(), copy / 'federation/keys'
    root = load_identity(path / 'root' / KEY_FILE, 'root')
    replace(roster, disjoint_patients=False).save(path / ROSTER_FILE, root)
    before = json.loads((copy / 'summary.json').read_text())['policies']
    result = fdrl('evaluate', copy)
    assert result.exit_code == 0, result.output
    summary = json.loads((copy / 'summary.json').read_text())
    assert summary['policies'] == before, 'evaluating again changes no number'
    for name, row in before.items():
        episodes = read_csv(copy / 'episodes' / f'{name}.csv')
        assert len(episodes) == row['patients']
        assert sum(each.success for each in episodes) == round(row['success'] * len(episodes))
        again = read_json(copy / 'episodes' / f'{name}.json')
        assert [each.damage for each in again] == [each.damage for each in episodes]
    assert summary['epsilon_of_shared_patients'] == pytest.approx(sum(summary['epsilon'].values()))
    assert summary['delta_of_shared_patients'] == pytest.approx(3 * summary['delta'])
    assert 'patient of one hospital alone took part' in ' '.join(result.output.split())
    for text in (result.output, fdrl('privacy', 'show', copy).output):
        words = ' '.join(text.split())
        assert f'at most {stated(summary["epsilon_of_shared_patients"])}, the sum' in words


def test_private_files_are_closed_to_others(trained):
    federation = trained[0] / 'federation'
    for name in ('.', 'keys', 'hospital_1', 'key_authority', 'aggregator', 'robot_1', 'log'):
        assert stat.S_IMODE((federation / name).stat().st_mode) == 0o700
    for name in (
        'hospital_1/records.npz',
        'keys/key_authority/he_secret.key',
        'hospital_1/ledger.sqlite',
    ):
        assert stat.S_IMODE((federation / name).stat().st_mode) == 0o600


def test_journals_of_a_run_fit_all_that_lies_beside_them(trained, tmp_path):
    run = Path(shutil.copytree(trained[0].resolve(), tmp_path / 'run'))
    found = fdrl('journal', 'verify', run)
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert lines[0].endswith('; compared with its state file and its privacy ledger')
    assert lines[4].startswith('key_authority: ')
    assert lines[4].endswith('; compared with its state file and the policies in it')
    home = run / 'federation/hospital_1'
    shutil.copy(home.with_name('hospital_2') / 'ledger.sqlite', home / 'ledger.sqlite')
    (home.with_name('aggregator') / 'state.sqlite').unlink()
    found = fdrl('journal', 'verify', run)
    assert found.exit_code == 1 and f'ledger {home / "ledger.sqlite"}' in found.output
    assert 'aggregator ran here' in found.output


def test_without_the_key_authority_s_state_a_run_does_not_go_on(trained, tmp_path):
    run = Path(shutil.copytree(trained[0].resolve(), tmp_path / 'run'))
    for name in ('hospital_1', 'aggregator', 'key_authority'):
        (run / 'federation' / name / 'state.sqlite').unlink()
    words = ('train', '--directory', run, '--no-evaluate', '--rounds', 3)
    result = fdrl(*words)
    assert result.exit_code == 1 and 'put back the newest state file' in result.output
    state = 'federation/key_authority/state.sqlite'
    shutil.copy(trained[0].resolve() / state, run / state)
    result = fdrl(*words)
    assert result.exit_code == 0 and f'fdrl evaluate {run}' in result.output
    assert (run / 'policies/global_3.npz').exists()


POOR = ('--no-evaluate', '--privacy-budget', 2.2)
"""A budget that pays for two rounds of the small plan."""


@pytest.mark.parametrize('command', ['train', 'run', 'prepare'])
def test_plan_that_the_budget_does_not_pay_for_is_refused_before_anything_is_spent(
    plan_file, tmp_path, command
):
    path = tmp_path / 'run'
    place = (path,) if command == 'prepare' else ('--directory', path)
    result = fdrl(
        command, *place, '--plan', plan_file, '--rounds', 3, '--privacy-budget', POOR[-1]
    )
    assert result.exit_code == 1 and result.stderr.count('\n') == 1
    assert 'the budget of 2.2 pays for 2: set --rounds to at most 2' in result.stderr
    assert not path.exists()


def test_budget_that_ends_early_ends_the_federation_and_keeps_what_was_learned(
    plan_file, tmp_path, caplog
):
    run = tmp_path / 'run'
    assert fdrl('train', '--plan', plan_file, '--directory', run, *POOR).exit_code == 0
    longer = fdrl('train', '--directory', run, '--rounds', 3, '--no-evaluate')
    assert longer.exit_code == 1 and 'pays for 2' in longer.stderr
    layout, said = Layout(run / 'federation'), []
    plan = Plan.load(layout.plan).changed({'rounds': {'rounds': 3}})
    notes = train_federation(layout, plan, run / 'policies', Caller(said.append))
    assert [each.round for each in notes] == [1, 2]
    reason = 'the privacy budget does not pay for round 3: hospital_1: epsilon'
    assert notes[-1].ended.startswith(reason) and 'above the budget of 2.2' in notes[-1].ended
    assert 'hospital_1 took no part: epsilon' in caplog.text and 'budget of 2.2' in caplog.text
    assert said[-1].detail.startswith('the federation ended in phase FINISHED after 2 of 3 rounds')
    assert reason in said[-1].detail
    assert max(notes[-1].epsilon.values()) <= 2.2
    assert read_rounds(run / 'rounds.json') == notes
    found = assess(layout, evaluate_policies(layout, plan, run / 'policies'), notes)
    assert found.summary()['ended'] == notes[-1].ended
    table = ' '.join(render_text(found).split())
    assert f'only 2 of 3 rounds were done: {reason}' in table


def test_a_budget_that_another_federation_spent_ends_training_with_the_reason_and_exit_code_1(
    plan_file, tmp_path, caplog
):
    account = tmp_path / '{hospital}.account'
    first, second = (
        ('train', *POOR, '--privacy-account', account, '--directory', tmp_path / name)
        for name in ('first', 'second')
    )
    for run in (first, second):
        begun = fdrl(*run, '--plan', plan_file, '--rounds', 1)
        assert begun.exit_code == 0, begun.output
    ended = fdrl(*first, '--plan', plan_file, '--rounds', 2)
    reason = 'fdrl: only 1 of 2 rounds were done: the privacy budget does not pay for round 2: '
    assert ended.exit_code == 1 and ended.stderr.splitlines()[-1].startswith(reason)
    account_1 = tmp_path / 'hospital_1.account'
    assert f'account {account_1}: epsilon 2.098 is spent, 2.574 is wanted' in caplog.text
    for path in (tmp_path / 'first').rglob('*'):  # what other parties hear has no amounts
        if path.name in ('journal.jsonl', 'rounds.json'):
            assert '2.574' not in path.read_text() and str(account_1) not in path.read_text()
    assert (tmp_path / 'first' / 'policies' / 'global_1.npz').exists()
    third = ('train', *POOR, '--privacy-account', account, '--directory', tmp_path / 'third')
    refused = fdrl(*third, '--plan', plan_file, '--rounds', 1)
    assert refused.exit_code == 1 and 'does not pay for the rounds that are left' in refused.stderr
    assert f'hospital_1: account {account_1}: 1 rounds of' in caplog.text


def test_restored_hospital_counts_as_having_spent_its_whole_budget(plan_file, tmp_path, caplog):
    run = tmp_path / 'run'
    home = run / 'federation' / 'hospital_1'
    once = fdrl('train', '--plan', plan_file, '--directory', run, '--no-evaluate', '--rounds', 1)
    assert once.exit_code == 0, once.output
    backup = shutil.copytree(home, tmp_path / 'backup')
    again = ('train', '--directory', run, '--no-evaluate', '--rounds')
    assert fdrl(*again, 2).exit_code == 0
    fewer = fdrl(*again, 1)
    assert fewer.exit_code == 1 and 'at least 2' in fewer.output + fewer.stderr
    assert fdrl('privacy', 'verify', run).exit_code == 0
    ledger = home / 'ledger.sqlite'
    newest = ledger.read_bytes()
    ledger.write_bytes((tmp_path / 'backup/ledger.sqlite').read_bytes())
    for command in (('privacy', 'verify', run), (*again, 3)):
        result = fdrl(*command)
        assert result.exit_code == 1 and 'restored' in result.output + result.stderr
    ledger.write_bytes(newest)
    layout = Layout(run / 'federation')
    plan = Plan.load(layout.plan)
    spent = ledger_spent(layout, 'hospital_1', plan).epsilon
    shutil.rmtree(home)
    backup.rename(home)
    assert spent < ledger_spent(layout, 'hospital_1', plan).epsilon == 8
    for place in (run, home):
        shown = fdrl('privacy', 'show', place)
        assert shown.exit_code == 1 and 'an old copy was restored' in shown.stderr
        assert ' or more: entries are missing or wrong, of budget 8 at' in shown.output
    told = json.loads(fdrl('privacy', 'show', run, '--json').stdout)
    assert [each['epsilon_is_lower_bound'] for each in told['ledgers']] == [True, False, False]
    said: list = []
    plan = plan.changed({'rounds': {'rounds': 3}})
    notes = train_federation(layout, plan, run / 'policies', Caller(said.append))
    reason = 'hospital_1: no part in round 3: its privacy ledger lacks'
    assert reason in said[-1].detail and reason in notes[-1].ended
    assert 'hospital_1 took no part: ledger' in caplog.text
    found = assess(layout, evaluate_policies(layout, plan, run / 'policies'), notes)
    assert found.summary()['epsilon']['hospital_1'] == 8
    assert found.summary()['ledger_problems'].keys() == {'hospital_1'}
    table = ' '.join(render_text(found).split())
    assert 'hospital 1 counts as having spent its whole budget: ledger' in table


def test_a_run_tells_which_hospital_lied_and_was_left_out(
    plan_file, tmp_path, monkeypatch, caplog
):
    honest = Hospital._send_sketch

    def lie(self, projected):
        if self.channel.name == 'hospital_2':
            flipped = bytes([projected.values[0] ^ 1]) + projected.values[1:]
            projected = replace(projected, values=flipped)
        return honest(self, projected)

    monkeypatch.setattr(Hospital, '_send_sketch', lie)
    place = ('--plan', plan_file, '--directory', tmp_path / 'run', '--hospitals', 4)
    result = fdrl('train', *place, '--rounds', 1, '--no-evaluate')
    assert result.exit_code == 0, result.output
    told = 'hospital_2 was left out: it signed false projections of a mask'
    assert told in caplog.text and told in result.stdout
    (note,) = read_rounds(tmp_path / 'run' / 'rounds.json')
    assert set(note.contributors) == {'hospital_1', 'hospital_3', 'hospital_4'}
    told = 'signed false projections of a mask'
    assert note.blamed == {'hospital_2': told}
    shown = CliRunner().invoke(main, ['journal', 'show', str(tmp_path / 'run')]).output
    assert 'Who was blamed' in shown and 'hospital_2' in shown.partition('Who was blamed')[2]
    verified = fdrl('journal', 'verify', tmp_path / 'run')
    assert verified.exit_code == 0
    assert f'hospital_2 was blamed in round 1: it {told} (noted by ' in verified.output


@pytest.mark.parametrize('command', ['train', 'run', 'prepare'])
def test_without_the_compiled_arithmetic_nothing_private_begins(tmp_path, monkeypatch, command):
    monkeypatch.setattr(kernels, 'lib', None)
    path = tmp_path / 'run'
    result = fdrl(command, *((path,) if command == 'prepare' else ('--directory', path)))
    assert result.exit_code == 1 and result.stderr.count('\n') == 1
    assert 'private training is refused' in result.stderr and not path.exists()


@pytest.mark.parametrize('command', ['train', 'run', 'prepare'])
@pytest.mark.parametrize('layers', ['nosuch', 'shared.0, nosuch'])
def test_personal_layers_that_are_none_leave_nothing_behind(tmp_path, command, layers):
    place = (tmp_path / 'run',) if command == 'prepare' else ('--directory', tmp_path / 'run')
    result = fdrl(command, *place, '--personal', layers)
    assert result.exit_code == 1 and result.stderr.count('\n') == 1
    assert "no tensor or module 'nosuch': expected some of shared.0" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('command', ['train', 'run', 'prepare'])
def test_a_model_too_large_for_a_message_leaves_nothing_behind(tmp_path, monkeypatch, command):
    monkeypatch.setattr(schemes, 'MOST_PARAMETERS', 6000)
    place = (tmp_path / 'run',) if command == 'prepare' else ('--directory', tmp_path / 'run')
    result = fdrl(command, *place)
    assert result.exit_code == 1 and result.stderr.count('\n') == 1
    assert 'a model of 7248 weights: expected at most 6000' in result.stderr
    assert not list(tmp_path.iterdir())


def test_another_plan_in_the_same_directory_is_refused(trained):
    result = fdrl('train', '--directory', trained[0].resolve(), '--collection-patients', 9)
    assert result.exit_code == 1
    assert '--collection-patients' in result.stderr and result.stderr.count('\n') == 1


def own_records(path, patients):
    """Save records of some patients of a hospital that is none of the plan."""
    cohort = Cohort(0, 1, 0.5, 99, procedures=('palpation',))
    settings = CollectionSettings(patients=patients)
    world = WorldSettings(mode='kinematic', horizon=6)
    records = HospitalSimulator(SurgeryTask(), world, settings).collect(cohort)
    records.save(path)
    return records


@pytest.mark.usefixtures('no_plots')
def test_a_hospital_trains_on_records_that_are_given_and_releases_nothing(plan_file, tmp_path):
    file, run = tmp_path / 'log.npz', tmp_path / 'run'
    records = own_records(file, 5)
    words = ('train', '--plan', plan_file, '--directory', run, '--rounds', 1)
    result = fdrl(*words, '--records', f'hospital_2={file}')
    assert result.exit_code == 0, result.output
    assert 'hospital_2: with the records that were given' in result.output
    layout = Layout(run / 'federation')
    assert Records.load(layout.records('hospital_2'), STATE_SIZE).digest() == records.digest()
    assert stat.S_IMODE(layout.records('hospital_2').stat().st_mode) == 0o600
    sizes = {each.name: each.size for each in layout.roster().members if each.size}
    assert sizes == {'hospital_1': 8, 'hospital_2': 5, 'hospital_3': 8}
    # Nobody knows whether such patients are in another hospital too.
    summary = json.loads((run / 'summary.json').read_text())
    assert summary['epsilon_of_shared_patients'] == pytest.approx(sum(summary['epsilon'].values()))
    # 4 of 5 patients a step spend more than 4 of 8.
    assert summary['epsilon']['hospital_2'] > summary['epsilon']['hospital_1']

    # Hospitals release their own policies by choice alone.
    assert 'release their own' not in result.output
    assert not summary['release'] and not Plan().federation.release
    rows = ['expert', 'untrained', 'pretrained']
    assert list(summary['policies']) == [*rows, 'alone', 'global', 'selector']
    assert {each.name for each in (run / 'policies').iterdir()} == {'global_0.npz', 'global_1.npz'}

    again = ('train', '--directory', run, '--no-evaluate')
    assert fdrl(*again, '--records', f'hospital_2={file}').exit_code == 0
    own_records(file, 6)
    result = fdrl(*again, '--records', f'hospital_2={file}')
    assert (result.exit_code, 'holds other records' in result.stderr) == (1, True)
    assert Records.load(layout.records('hospital_2'), STATE_SIZE).n_patients == 5
    # A summary of fewer rounds does not outlive further training.
    assert summary['rounds'] == 1 and (run / 'summary.json').exists()
    assert fdrl(*again, '--rounds', 2).exit_code == 0
    assert not (run / 'summary.json').exists() and not (run / 'table.txt').exists()


def test_records_that_cannot_be_trained_on_are_refused_before_anything_is_made(
    plan_file, tmp_path
):
    file, runs = tmp_path / 'log.npz', tmp_path / 'runs'
    own_records(file, 3)
    np.savez(tmp_path / 'foreign.npz', a=1)
    for given, said in (
        (f'hospital_1={file}', '--privacy-batch 4: expected at most 3'),
        (f'hospital_9={file}', "--records 'hospital_9': expected one of hospital_1, "),
        (str(file), 'HOSPITAL=FILE'),
        (f'hospital_1={tmp_path / "none.npz"}', 'cannot read the records'),
        (f'hospital_1={tmp_path / "foreign.npz"}', 'cannot read the records'),
    ):
        result = fdrl('train', '--plan', plan_file, '--runs', runs, '--records', given)
        assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.stderr
        assert said in result.stderr
    assert not runs.exists()


def test_records_go_into_a_prepared_federation_only_while_its_roster_is_not_signed(
    plan_file, tmp_path
):
    file = tmp_path / 'log.npz'
    own_records(file, 5)
    words = ('prepare', tmp_path / 'f', '--plan', plan_file)
    assert fdrl(*words).exit_code == 0
    result = fdrl(*words, '--records', f'hospital_1={file}')
    assert result.exit_code == 1 and 'declares 8 patients of hospital_1' in result.stderr
    assert not Layout(tmp_path / 'f').records('hospital_1').exists()
    own = ('prepare', tmp_path / 'g', '--plan', plan_file, '--records', f'hospital_1={file}')
    for _ in range(2):
        assert fdrl(*own).exit_code == 0
    assert Layout(tmp_path / 'g').roster().member('hospital_1').size == 5


def founded(directory, *flags, **sizes):
    """Make the keys of a federation, whose hospitals declare so many patients."""
    directory.mkdir(mode=0o700)
    declared = [word for name, size in sizes.items() for word in ('--hospital', f'{name}={size}')]
    made = fdrl('keys', 'init', directory / 'keys', *flags, *declared)
    assert made.exit_code == 0, made.output
    return directory


def test_a_federation_is_ready_for_the_hospitals_of_its_roster(plan_file, tmp_path):
    members = ('hospital_1', 'hospital_3', 'hospital_4')
    directory = founded(tmp_path / 'some', '--disjoint-patients', **dict.fromkeys(members, 8))
    result = fdrl('prepare', directory, '--plan', plan_file, '--hospitals', 4)
    assert result.exit_code == 0, result.output
    assert f'{directory} is ready for {", ".join(members)}\n' in result.stdout
    assert not result.stderr and not (directory / 'hospital_2').exists()


def test_hospitals_beyond_the_plan_are_told_to_bring_records(plan_file, tmp_path):
    file, sizes = tmp_path / 'log.npz', {'hospital_1': 8, 'north': 5, 'hospital_4': 7}
    own_records(file, 5)
    directory = founded(tmp_path / 'some', **sizes)
    words = ('prepare', directory, '--plan', plan_file)
    result = fdrl(*words)
    assert result.exit_code == 0, result.output
    assert f'{directory} is ready for hospital_1\n' in result.stdout
    assert 'of hospital_1, hospital_2, hospital_3, not of north, hospital_4' in result.stderr
    assert '--records north=FILE' in result.stderr
    plan, layout = Plan.load(plan_file), Layout(directory)
    layout.credentials('north')  # its directory is there
    with pytest.raises(RecordsError, match=r'none of the 3 .*some/north/records\.npz'):
        open_records(layout, 'north', plan)

    result = fdrl(*words, '--records', f'north={file}')
    assert result.exit_code == 0, result.output
    assert f'{directory} is ready for hospital_1, north\n' in result.stdout
    assert 'not of hospital_4' in result.stderr
    assert open_records(layout, 'north', plan).n_patients == 5
    refused = fdrl(*words, '--records', f'hospital_2={file}')
    assert 'expected one of hospital_1, north, hospital_4' in refused.stderr

    strangers = founded(tmp_path / 'strangers', north=8, south=8, west=8)
    result = fdrl('prepare', strangers, '--plan', plan_file)
    assert f'{strangers} is ready for none of its hospitals yet\n' in result.stdout


@pytest.mark.parametrize(
    ('flags', 'size', 'refused', 'said', 'taken'),
    [
        (
            (),
            500,
            (),
            '(500 of hospital_1, hospital_2, hospital_3, hospital_4 and 5 more)',
            ('--collection-patients', 500),
        ),
        (('--buckets', 2), 8, ('--buckets', 3), 'which the roster says', ('--buckets', 2)),
        ((), 8, ('--encryption-norm', 1e-9), '--encryption-norm', ()),
    ],
)
def test_settings_that_prepare_refuses_are_not_kept(
    plan_file, tmp_path, flags, size, refused, said, taken
):
    names = [f'hospital_{number}' for number in range(1, 10)]
    directory = founded(tmp_path / 'some', *flags, **dict.fromkeys(names, size))
    words = ('prepare', directory, '--plan', plan_file, '--hospitals', 9)
    for _ in range(2):
        result = fdrl(*words, *refused)
        assert (result.exit_code, said in result.stderr) == (1, True), result.stderr
        assert not Layout(directory).plan.exists() and not Layout(directory).pretrained.exists()
    result = fdrl(*words, *taken)
    assert result.exit_code == 0, result.output


def test_a_run_is_never_made_in_a_prepared_federation_or_over_a_plan(plan_file, tmp_path):
    fed, other = tmp_path / 'fed', tmp_path / 'other'
    assert fdrl('prepare', fed, '--plan', plan_file, '--procedures', 'reach').exit_code == 0
    other.mkdir()
    shutil.copy(fed / 'plan.yaml', other)
    for directory in (fed, other):
        before = {each: each.read_bytes() for each in directory.rglob('*') if each.is_file()}
        for command in ('train', 'run', 'experiment', 'heterogeneity'):
            result = fdrl(command, '--directory', directory)
            assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.output
            assert 'the directory of a run, or a new one' in result.stderr
        assert before == {
            each: each.read_bytes() for each in directory.rglob('*') if each.is_file()
        }


def test_a_policy_file_is_put_beside_the_expert(trained, plan_file, tmp_path):
    path = trained[0] / 'policies' / 'global_2.npz'
    target = tmp_path / 'episodes'
    result = fdrl('evaluate', path, '--plan', plan_file, '--episodes', target)
    assert result.exit_code == 0 and 'expert' in result.output, result.output
    assert len(list(target.glob('*.csv'))) == len(list(target.glob('*.json'))) == 2
    refused = fdrl('evaluate', trained[0], '--episodes', target)
    assert refused.exit_code == 1 and 'episodes' in refused.stderr


def test_results_of_another_world_or_of_other_settings_are_not_written_over(
    trained, plan_file, monkeypatch
):
    run = trained[0].resolve()
    files = [each for each in run.rglob('*') if each.is_file()]
    before = {each: each.read_bytes() for each in files}
    found = fdrl('evaluate', run, '--world-horizon', 20, '--learner-epochs', 2)
    assert found.exit_code == 1 and 'global_1.npz' in found.stderr
    assert 'other settings (--learner-epochs, --world-horizon)' in found.stderr
    policy, was = run / 'policies/global_2.npz', Plan.load(plan_file).identity.world_hash
    monkeypatch.setattr(SurgeryTask, 'constants', lambda self: b'another world')
    now = Plan.load(plan_file).identity.world_hash
    found = fdrl('evaluate', run)
    assert (found.exit_code, found.stderr.count('\n')) == (1, 1), found.stderr
    for words in (was[:12], now[:12], 'put back the version', 'evaluate its files'):
        assert words in found.stderr
    assert {each: each.read_bytes() for each in files} == before
    found = fdrl('evaluate', policy, '--plan', plan_file)
    assert found.exit_code == 0, found.output
    assert was[:12] in found.output and f'evaluated in task surgery 1 (world {now[:12]})' in (
        ' '.join(found.output.split())
    )


def test_policies_and_runs_of_another_task_are_refused_by_its_name(trained, plan_file):
    task = ('--task', f'{pole.__file__}:Pole')
    found = fdrl('evaluate', trained[0] / 'policies/global_2.npz', *task)
    assert found.exit_code == 1 and found.stderr.count('\n') == 1
    assert 'is of task surgery 1' in found.stderr and 'not of task pole 1' in found.stderr
    found = fdrl('evaluate', trained[0], *task)
    assert found.exit_code == 1 and 'has results of task surgery, not of' in found.stderr


def test_what_is_no_policy_is_refused(tmp_path):
    for name, data in (('missing.npz', None), ('text.npz', b'no policy')):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        result = fdrl('evaluate', path)
        assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.stderr


@pytest.mark.parametrize(
    'words',
    [
        ('--rounds', '0'),
        ('--heterogeneity', '1.5'),
        ('--noise', 'loud'),
        ('--privacy-delta', 'nan'),
        ('--plan', 'no_such_plan'),
        ('--evaluation-patients', '-3'),
    ],
)
def test_a_value_that_cannot_be_is_one_line_and_code_1(words, tmp_path):
    result = fdrl('train', '--runs', tmp_path / 'runs', *words)
    assert result.exit_code == 1
    assert result.stderr.count('\n') == 1 and result.stderr.startswith('fdrl: ')
    assert not (tmp_path / 'runs').exists()
    (tmp_path / 'runs').write_text('a file where the directory should be')
    result = fdrl('train', '--runs', tmp_path / 'runs')
    assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.stderr


def test_a_plan_with_an_unknown_name_is_refused(tmp_path):
    path = tmp_path / 'plan.yaml'
    for text in ('privacy: {epsilon: 3}', 'prviacy: {}', '- a list', 'rounds: {rounds: [', '"'):
        path.write_text(text)
        result = fdrl('train', '--plan', path, '--runs', tmp_path / 'runs')
        assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.stderr


def test_ctrl_c_stops_cleanly_and_the_run_goes_on_to_the_policy_of_an_unbroken_one(
    trained, plan_file, tmp_path, monkeypatch
):
    from fdrl_ros.learner.trainer import Trainer

    train = Trainer.train
    interrupted = []

    def interrupt(self, *arguments, **named):
        interrupted.append(self)
        if len(interrupted) == 4:  # in the second round of three hospitals
            os.kill(os.getpid(), signal.SIGINT)
        return train(self, *arguments, **named)

    monkeypatch.setattr(Trainer, 'train', interrupt)
    words = ('train', '--plan', plan_file, '--directory', tmp_path / 'run', '--no-evaluate')
    result = fdrl(*words)
    assert result.exit_code == 130
    typed = shlex.join(['fdrl', *map(str, words)])
    assert f'{typed} goes on from here' in result.stderr
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    first = load_policy(tmp_path / 'run/policies/global_1.npz').weights
    assert fdrl(*words).exit_code == 0
    same = load_policy(tmp_path / 'run/policies/global_1.npz').weights
    assert (first == same).all()
    notes = json.loads((tmp_path / 'run/rounds.json').read_text())
    assert [each['round'] for each in notes] == [1, 2]
    assert notes[1]['epsilon']['hospital_1'] > notes[0]['epsilon']['hospital_1']
    assert same_policy(trained[0], tmp_path / 'run')


@pytest.mark.parametrize(
    ('given', 'said'),
    [(('--seeds', 3), 'seeds'), (('--rounds', 1), 'plan'), (('--seed', 7), 'plan')],
)
def test_the_study_of_mastery_takes_no_other_seeds_or_settings(given, said, tmp_path):
    words = ('experiment', '--plan', 'mastery', '--quick', *given, '--directory', tmp_path / 'a')
    failed = fdrl(*words)
    assert failed.exit_code == 1 and f'fdrl: --{said} ' in failed.output
    assert 'fixed before' in failed.output and not list(tmp_path.glob('a/*.json'))


@pytest.mark.usefixtures('no_plots')
def test_experiment_runs_each_seed_once(plan_file, tmp_path):
    words = ('experiment', '--plan', plan_file, '--seeds', 2, '--rounds', 1)
    words += ('--directory', tmp_path / 'two')
    assert fdrl(*words).exit_code == 0
    found = json.loads((tmp_path / 'two/experiment.json').read_text())
    assert found['seeds'] == [1, 2] and not found['private']
    assert len(found['federated_minus']['pretrained']['success']['values']) == 2
    times = {each: each.stat().st_mtime_ns for each in (tmp_path / 'two').glob('seed_*.json')}
    assert fdrl(*words).exit_code == 0
    assert times == {each: each.stat().st_mtime_ns for each in times}
    assert fdrl(*words, '--rounds', 2).exit_code == 1


def test_a_directory_that_was_prepared_for_another_plan_takes_no_records(plan_file, tmp_path):
    plan, own = Plan.load(plan_file), {'hospital_2': own_records(tmp_path / 'log.npz', 8)}
    layout = prepare(tmp_path / 'f', plan)
    before = layout.plan.read_bytes()
    with pytest.raises(StoreError, match=r'with other settings \(learner.epochs\)'):
        prepare(layout.directory, plan.changed({'learner': {'epochs': 2}}), own)
    with pytest.raises(StoreError, match='declares 8 patients of hospital_3'):
        prepare(layout.directory, plan, own | {'hospital_3': own_records(tmp_path / 'log', 6)})
    assert not layout.records('hospital_2').exists() and layout.plan.read_bytes() == before


def test_preparing_is_repeated_after_an_interruption(plan_file, tmp_path):
    plan = Plan.load(plan_file)
    (tmp_path / 'f/keys.part/root').mkdir(parents=True)
    (tmp_path / 'f').chmod(0o700)
    layout = prepare(tmp_path / 'f', plan)
    digest = layout.roster().digest
    assert not (tmp_path / 'f/keys.part').exists()
    layout.pretrained.unlink()
    assert prepare(tmp_path / 'f', plan).roster().digest == digest
    assert Layout(tmp_path / 'f').pretrained.exists()


def test_new_runs_never_share_a_directory_and_latest_follows(tmp_path):
    one = RunDirectory.create(tmp_path, 'now')
    two = RunDirectory.create(tmp_path, 'now')
    assert one.path != two.path
    for each in (one, two, one):
        each.point_latest()
        assert (tmp_path / 'latest').resolve() == each.path
    assert (tmp_path / 'latest').readlink() == Path(one.path.name)
    assert RunDirectory.open(tmp_path / 'latest').path == one.path
    (tmp_path / 'file').touch()
    with pytest.raises(StoreError):
        RunDirectory.open(tmp_path / 'file')


def test_without_ros_the_same_parties_run_in_this_process(plan_file, tmp_path, monkeypatch):
    from fdrl_ros.cli.federation import run

    def begun(*arguments, **named):
        raise StoreError('it began in this process')

    monkeypatch.setattr(run, 'missing_ros', lambda: 'rclpy is not found')
    monkeypatch.setattr(run, 'run_training', begun)
    result = fdrl('run', '--plan', plan_file, '--runs', tmp_path)
    assert 'rclpy is not found' in result.output and 'in this process instead' in result.output
    assert result.exit_code == 1 and 'it began' in result.stderr


def test_the_budget_says_how_many_rounds_it_pays_for_before_the_first(trained):
    assert 'The budget of epsilon 8 pays for ' in trained[1]
    assert ' rounds; 2 are planned.' in trained[1]
    layout = Layout(trained[0] / 'federation')
    words = budget_words(Plan.load(layout.plan), layout)
    assert words.endswith(' rounds beyond the 2 that are done; 2 are planned.')


@pytest.mark.parametrize('command', ['train', 'run', 'evaluate'])
def test_a_second_command_on_a_run_is_refused_naming_the_first(trained, command):
    run = trained[0].resolve()
    place = (run,) if command == 'evaluate' else ('--directory', run)
    with RunDirectory(run).lock():
        result = fdrl(command, *place)
    assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.stderr
    assert f'{run} is used by process {os.getpid()} (' in result.stderr


def test_a_run_is_not_begun_in_the_directory_of_a_study(plan_file, tmp_path):
    (tmp_path / 'experiment.json').write_text('{}')
    result = fdrl('train', '--plan', plan_file, '--directory', tmp_path)
    assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.stderr
    assert 'is no run, as it has no federation/, but experiment.json' in result.stderr


def test_an_error_names_the_flag_that_was_typed_or_that_would_mend_it(tmp_path):
    plan = tmp_path / 'plan.yaml'
    plan.write_text('rounds: {quorum: 5}')
    none = tmp_path / 'none'
    for words, said in (
        (('--rounds', 0), '--rounds 0: expected a whole number, at least 1'),
        (('--heterogeneity', 2), '--heterogeneity 2.0: expected a number, at least 0'),
        (('--privacy-delta', 2), '--privacy-delta 2.0: expected a number'),
        (('--task', 'surgry'), "--task 'surgry': expected FILE.py:CLASS, or one of"),
        (('--plan', 'qick'), "--plan 'qick': expected a YAML file, or one of the 7 plans; did"),
        (('--plan', plan), '--quorum 5: expected at most 3 hospitals (not given here, but by '),
        (('--rounds', 60), 'set --rounds to at most'),
        (('--rounds', 60), 'a greater --privacy-noise-multiplier, fewer --learner-epochs'),
        (('--privacy-noise-multiplier', 0), 'a --privacy-noise-multiplier above 0'),
        (('--records', 'hospital_1'), "--records 'hospital_1': expected HOSPITAL=FILE"),
    ):
        result = fdrl('train', '--directory', none, *words)
        assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.stderr
        assert said in result.stderr
    assert not none.exists()


def test_a_missing_directory_says_what_makes_one(tmp_path):
    none = tmp_path / 'none'
    for words in (
        ('evaluate', none),
        ('policies', 'list', '--directory', none),
        ('policies', 'pin', 'global', 3, '--directory', none),
        ('privacy', 'show', none),
        ('journal', 'show', none),
        ('keys', 'show', none),
        ('operator', 'pause', '--directory', none),
        ('join', none),
        ('export', none, 'hospital_1', '--to', tmp_path / 'to'),
        ('migrate', none),
    ):
        result = fdrl(*words)
        assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.stderr
        assert f'{none} is not there' in result.stderr and '`fdrl prepare`' in result.stderr


def test_a_robot_without_policies_says_how_it_gets_some(trained):
    for words in (('list',), ('show', 'global'), ('pin', 'global', 3)):
        result = fdrl('policies', *words, '--directory', trained[0])
        assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.stderr
        assert 'has no policies yet: a robot has policies once it ran' in result.stderr
