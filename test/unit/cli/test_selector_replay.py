# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl selector replay` tells what is chosen on a recording, and compares it with what was."""

import json

from click.testing import CliRunner
from fdrl_ros.cli import commands
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.surgery.data.bag import write_bag
from fdrl_ros.surgery.data.recording import demonstrations
from fdrl_ros.surgery.settings import WorldSettings
import pytest
from support.signed_policies import robot_directory

pytest.importorskip('rosbags.rosbag2')

PLAN = Plan().changed({'learner': {'hidden': 4}})


@pytest.fixture(scope='module')
def places(tmp_path_factory):
    """Return a bag, and the directory of a robot that has no policy yet."""
    folder = tmp_path_factory.mktemp('replay')
    bag = folder / 'bag'
    write_bag(
        demonstrations('palpation', folder / 'demo', 1, world=WorldSettings(mode='kinematic')), bag
    )
    robot_directory(folder / 'federation', PLAN)
    return str(bag), str(folder)


def fdrl(places, *words, code=0):
    bag, directory = places
    done = CliRunner().invoke(
        commands.main, ['selector', 'replay', bag, '--policies', directory, *words]
    )
    assert done.exit_code == code, done.output
    return done.output


def test_it_tells_choices_reasons_and_how_many_are_those_recorded(places):
    document = json.loads(fdrl(places, '--json'))
    count = document['decisions']
    assert count == len(document['selections']) > 10
    assert document['reasons'] == {'no_policy': count} and document['switches'] == 0
    assert [each['name'] for each in document['candidates']] == ['hold']
    # The surgeon of the demonstration gave no reason of this selector's, and did not hold.
    assert document['comparison']['agree'] == 0
    # What ended the operation was recorded as a state without an action.
    assert len(document['comparison']['differ']) == count
    text = fdrl(places)
    assert f'0 of {count} decisions are those recorded' in text
    assert f'{count} decisions, 0 switches' in text


def test_what_differs_is_told_by_the_clock_of_the_table_with_what_may_be_the_reason(places):
    text = fdrl(places)
    assert '│ 0.00    │ hold   │ no_policy │' in text
    differing = [line.split(':')[0] for line in text.splitlines() if line.startswith('  at ')]
    assert differing[:2] == ['  at 0.00 s', '  at 0.05 s']
    assert text.endswith('Try --follow.\n')
    assert 'Try --follow' not in fdrl(places, '--follow')


def test_holding_has_an_estimate_where_it_was_chosen_and_none_elsewhere(places):
    """As the message SelectedAction has it."""
    never = ('--gate-close-at', '0', '--gate-open-below', '0', '--json')
    for words, value in ((('--json',), -1.5), (never, None)):
        told = json.loads(fdrl(places, *words))['selections']
        assert {each['value'] for each in told} == {value}


def test_settings_count_as_the_node_would_be_given_them(places):
    never = ('--gate-close-at', '0', '--gate-open-below', '0', '--json')
    assert set(json.loads(fdrl(places, *never))['reasons']) == {'risk_gate'}
    refused = fdrl(places, '--gate-close-at', '0.1', code=1)
    assert '--gate-open-below 0.5: expected at most close_at 0.1' in refused


def test_following_decides_where_the_recorded_selector_did(places):
    free, followed = (json.loads(fdrl(places, '--json', *more)) for more in ((), ('--follow',)))
    assert followed['decisions'] == free['decisions'] - 1


def test_what_is_not_there_is_named(places):
    assert 'robot_7' in fdrl(places, '--robot', 'robot_7', code=1)
    assert 'robot_2' in fdrl(places, '--topics', 'robot_2', code=1)
