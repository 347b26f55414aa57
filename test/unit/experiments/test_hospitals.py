# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The study of the number of hospitals: who is tried, what is paired, and that it goes on."""

import json

from click.testing import CliRunner, Result
from fdrl_ros.cli import main
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import TrainingStopped
from fdrl_ros.experiments.studies import hospitals
from fdrl_ros.experiments.studies.hospitals import (
    ALONE,
    by_speciality,
    CLUSTER,
    HOME,
    NEWCOMERS,
    SHARED,
    shown_hospitals,
    START,
    summarise,
    WHO,
)
from fdrl_ros.federation.plain import PlainFederation
import pytest

FLAGS = (
    '--learner-hidden 4 --learner-epochs 1 --learner-transitions-per-patient 4 --rounds 2 '
    '--home-epochs 1 --noise seeded --privacy-batch 2 --privacy-delta 1e-3 '
    '--collection-patients 4 --pretraining-patients 2 --pretraining-steps 4 '
    '--pretraining-batch 8 --evaluation-patients 6 --evaluation-workers 1 --world-horizon 8'
)


def study(directory, *more: str) -> Result:
    words = ['hospitals', *FLAGS.split(), '--directory', str(directory), *more]
    return CliRunner().invoke(main, words)


def test_the_command_measures_every_number_and_goes_on_wherever_it_was_stopped(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(hospitals, 'SHOWN', 3)
    flags = ('--counts', '4,3', '--seeds', '2')
    whole = study(tmp_path / 'whole', *flags)
    assert whole.exit_code == 0, whole.output
    summary = json.loads((tmp_path / 'whole/hospitals.json').read_text())
    assert (tmp_path / 'whole/hospitals.png').stat().st_size > 5000
    assert (summary['counts'], summary['seeds'], summary['private']) == ([3, 4], [1, 2], False)
    for who in WHO:
        assert all(0.0 <= at['mean'] <= 1.0 for at in summary['success'][who]['at'])
    # Patients are disjoint: more hospitals cost nobody more, and what is made at home costs.
    assert len(set(summary['epsilon'][SHARED])) == 1
    assert summary['epsilon'][HOME] == summary['epsilon'][ALONE]
    assert 0.0 < summary['epsilon'][SHARED][0] < summary['epsilon'][HOME][0] <= 8.0
    play = PlainFederation.play

    def stop(*unused: object, **named: object) -> None:
        raise TrainingStopped('stopped by the user')

    def stop_in_the_second_round(federation, stopped):
        return stop() if federation.round == 1 else play(federation, stopped)

    with monkeypatch.context() as stopping:
        stopping.setattr(PlainFederation, 'play', stop_in_the_second_round)
        assert 'stopped' in study(tmp_path / 'twice', *flags).output
    with monkeypatch.context() as stopping:  # once home policies are made and paid for
        stopping.setattr(hospitals, 'train_alone', stop)
        assert 'stopped' in study(tmp_path / 'twice', *flags).output
    assert study(tmp_path / 'twice', *flags).exit_code == 0
    assert json.loads((tmp_path / 'twice/hospitals.json').read_text()) == summary
    monkeypatch.setattr(hospitals, 'measure', None)  # nothing is measured again
    assert study(tmp_path / 'twice', *flags).exit_code == 0


def test_with_clusters_each_hospital_has_the_policy_of_its_speciality(tmp_path, monkeypatch):
    played = []
    play = PlainFederation.play

    def noted(federation, stopped):
        played.append(set(federation._learners))
        return play(federation, stopped)

    monkeypatch.setattr(PlainFederation, 'play', noted)
    done = study(tmp_path, '--counts', '12', '--seeds', '1', '--clusters')
    assert done.exit_code == 0, done.output
    plan = Plan().changed({'federation': {'hospitals': 12, 'seed': 1}})
    groups = [set(names) for names in by_speciality(plan).values()]
    assert [each for each in played if len(each) == 3] == [each for each in groups for _ in '12']
    assert set.union(*groups) == set(plan.hospitals) and len(groups) == 4
    summary = json.loads((tmp_path / 'hospitals.json').read_text())
    assert 0.0 <= summary['success'][CLUSTER]['at'][0]['mean'] <= 1.0
    assert f'{CLUSTER} minus {SHARED}' in summary['leads']
    refused = study(tmp_path / 'few', '--counts', '11', '--clusters')
    assert refused.exit_code == 1 and '12 hospitals at least' in refused.output


@pytest.mark.parametrize('counts', ['2', '3,x', '', '3,1001'])
def test_what_is_no_number_of_hospitals_is_refused(tmp_path, counts):
    refused = study(tmp_path, '--counts', counts)
    assert refused.exit_code == 1 and 'numbers from 3 to 1000' in refused.output


def test_layers_that_stay_at_home_are_refused(tmp_path):
    refused = study(tmp_path, '--personal', 'value')
    assert refused.exit_code == 1 and 'none in this study' in refused.output


def test_the_hospitals_that_are_shown_follow_from_seed_and_number():
    def shown(count: int, seed: int = 1) -> list[str]:
        return shown_hospitals(Plan().changed({'federation': {'hospitals': count, 'seed': seed}}))

    assert shown(3) == ['hospital_1', 'hospital_2', 'hospital_3']
    assert len(set(shown(300))) == 10 and shown(300) == shown(300) != shown(300, 2)


def part(success: dict[str, tuple[float, float]]) -> dict[str, object]:
    return {
        'away': {'success': {who: {'hospital_9': success[who][0]} for who in NEWCOMERS}},
        'success': {
            who: dict(zip(('hospital_1', 'hospital_2'), success[who], strict=True)) for who in WHO
        },
        'procedures': {who: {'reach': [4, 4 * success[who][0]]} for who in WHO},
        'epsilon': {SHARED: 6.0, HOME: 7.0, ALONE: 7.0},
    }


def test_leads_are_paired_by_seed():
    """Both seeds lead by 0.1, though they differ by 0.4: the interval of the lead is a point."""
    rows = [
        part(dict.fromkeys(WHO, (low, low + 0.2)) | {SHARED: (low + 0.1, low + 0.3)})
        for low in (0.1, 0.5)
    ]
    found = summarise([rows])
    assert found['success'][START]['at'][0]['mean'] == pytest.approx(0.4)
    lead = found['leads'][f'{SHARED} minus {ALONE}'][0]
    assert [lead[name] for name in ('mean', 'low', 'high')] == pytest.approx([0.1] * 3)
    assert found['procedures']['reach'][SHARED][0]['values'] == pytest.approx([0.2, 0.6])
    assert found['away']['leads'][f'{SHARED} minus {ALONE}'][0]['mean'] == pytest.approx(0.1)
    assert found['away']['success'][START]['at'][0]['mean'] == pytest.approx(0.3)
    assert found['epsilon'][HOME] == [7.0]
