# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl audit` on a tiny plan: what it writes, how it goes on, what it refuses, its codes."""

import json
from pathlib import Path

from click.testing import CliRunner
from fdrl_ros.audit.observation import AuditedTrainer
from fdrl_ros.audit.privacy_audit import AuditSettings, BOUNDS
from fdrl_ros.cli import main
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import TrainingStopped
from fdrl_ros.experiments.studies import audit as study
from fdrl_ros.experiments.studies.audit import run_audit
from fdrl_ros.privacy.stated import stated
from fdrl_ros.runtime.progress import Caller
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
TINY = {
    'federation': {'noise': 'seeded'},
    'rounds': {'rounds': 2},
    'learner': {'hidden': 8, 'epochs': 2, 'transitions_per_patient': 2},
    'privacy': {'batch': 4, 'noise_multiplier': 2.0, 'budget': 100.0, 'delta': 1e-5},
    'collection': {'patients': 4, 'guide': 'expert'},
    'evaluation': {'workers': 1},
    'world': {'mode': 'kinematic', 'horizon': 8},
}
PLAN = Plan().changed(TINY)
SETTINGS = AuditSettings(canaries=200)
FLAGS = (
    '--noise seeded --rounds 2 --learner-hidden 8 --learner-epochs 2 '
    '--learner-transitions-per-patient 2 --privacy-batch 4 --privacy-noise-multiplier 2.0 '
    '--privacy-budget 100 --privacy-delta 1e-5 --collection-patients 4 --collection-guide expert '
    '--evaluation-workers 1 --world-mode kinematic --world-horizon 8 --audit-canaries 200'
)


def fdrl(*words):
    return CliRunner().invoke(main, [str(each) for each in words])


def without_seconds(summary):
    for part in summary['parts']:
        part.pop('seconds')
    return summary


def test_a_stopped_audit_goes_on_and_ends_with_the_same_numbers(tmp_path):
    whole = run_audit(tmp_path / 'whole', PLAN, SETTINGS, range(1, 3))
    assert [each['seed'] for each in whole['parts']] == [1, 2] and not whole['faults']
    for part in whole['parts']:
        assert part['claimed'] > max(part['estimated'], part['bound'], part['by_errors'])
    claimed = whole['parts'][0]['claimed']
    sure, surer = whole['together']['0.95'], whole['together']['0.999']
    for name, each in sure.items():
        assert surer[name] <= each < claimed
    # Both seeds together show more than either.
    assert surer['estimated'] > max(part['estimated'] for part in whole['parts'])
    # A claim between what one seed and what both prove is found too low by both together.
    alone = max(part['estimated'] for part in whole['parts'])
    failure = SETTINGS.failure
    proven = study._together(whole['parts'], 1.0 - failure)['estimated']
    assert alone < proven
    low = [{**part, 'claimed': (alone + proven) / 2.0} for part in whole['parts']]
    relevant = {'settings': {'audit': {'failure': failure}}}
    assert 'all seeds' in study.summarise(relevant, [1, 2], low)['faults'][0]
    assert not study.summarise(relevant, [1, 2], whole['parts'])['faults']
    asked = iter(range(10**6))
    with pytest.raises(TrainingStopped):  # 4 patients, 4 steps of seed 1, one of seed 2
        cut = Caller(stopped=lambda: next(asked) > 8)
        run_audit(tmp_path / 'cut', PLAN, SETTINGS, range(1, 3), cut)
    kept = tmp_path / 'cut/seeds/seed_1.json'
    assert kept.exists() and not (tmp_path / 'cut/seeds/seed_2.json').exists()
    stamp, said = kept.stat().st_mtime_ns, []
    again = run_audit(tmp_path / 'cut', PLAN, SETTINGS, range(1, 3), Caller(said.append))
    assert without_seconds(again) == without_seconds(whole)
    assert kept.stat().st_mtime_ns == stamp
    assert {each.who for each in said} == {'seed_2', 'all parts'}
    assert all(0 <= each.done <= each.total for each in said)
    assert not list((tmp_path / 'cut/seeds').glob('*.unfinished'))


def test_command_prints_the_proof_beside_the_claim_and_writes_json_and_plot(tmp_path):
    done = fdrl('audit', '--directory', tmp_path, '--seeds', 1, *FLAGS.split())
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / 'audit.json').read_text())
    assert summary['parts'][0]['canaries'] == 200 and summary['parts'][0]['patients'] == 4
    assert stated(summary['parts'][0]['claimed'], 3) in done.output
    for name in ('estimated', 'bound', 'by_errors', 'attainable'):
        assert f'{summary["parts"][0][name]:.3f}' in done.output
    assert '200 canaries among 4 patients' in done.output and '99.98 %' in done.output
    assert (tmp_path / 'audit.png').read_bytes().startswith(b'\x89PNG')


def test_command_ends_with_3_and_says_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(AuditedTrainer, 'noise', lambda self, *at: np.zeros(self.dqn.size))
    done = fdrl('audit', '--directory', tmp_path, '--seeds', 1, *FLAGS.split())
    assert done.exit_code == 3
    assert 'fdrl: FAULT: seed 1: epsilon is at least' in done.output
    faults = json.loads((tmp_path / 'audit.json').read_text())['faults']
    assert all(f'FAULT: {each}' in done.output for each in faults)
    assert sum('noise: size' in each for each in faults) == 1


def test_documented_figures_are_those_of_the_result_file():
    saved = json.loads((ROOT / 'docs/results/audit.json').read_text('utf-8'))
    page = (ROOT / 'docs/privacy.md').read_text('utf-8')
    for each in saved['figures']:
        rows = [line for line in page.splitlines() if line.startswith(f'| {each["case"]} |')]
        assert len(rows) == 2, each['case']
        assert f'| {each["claimed"]:.2f} |' in rows[0]
        for name in BOUNDS:
            low, high, mean = min(each[name]), max(each[name]), np.mean(each[name])
            assert f'| {mean:.2f} [{low:.2f}, {high:.2f}] |' in rows[0]
        words = [
            f'{bounds[name]:.2f} ({bounds[name] / each["claimed"]:.2f})'
            for name in BOUNDS
            for bounds in each['together'].values()
        ]
        assert f'| {" | ".join(words)} |' in rows[1]
    assert saved['settings']['failure'] == AuditSettings().failure
    assert len(saved['settings']['seeds']) == 5
