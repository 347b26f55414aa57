# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The page's nodes: what an arm and a federation say is shown, and what people do arrives."""

import json
from pathlib import Path
import struct

from fdrl_ros.deployment.bringup import hospital_graph, robot_graph, RoomArguments
from fdrl_ros.page.acts import JOURNAL, verify_acts
from fdrl_ros.page.sessions import Role
from node.conftest import PLAN
from support.page_client import PageClient


def journal(directory: Path) -> list[tuple[str, str, str]]:
    lines = (directory / JOURNAL).read_text().splitlines()
    told = map(json.loads, lines)
    return [(each['name'], each.get('act', ''), each['result']) for each in told]


def test_arm_is_shown_and_a_surgeon_takes_over(page, runner, settings, directory):
    page, url = page
    ada = PageClient.of(page, url, Role.SURGEON)
    bob = PageClient.of(page, url, Role.SURGEON, 'Bob')
    runner.start(robot_graph(settings, 'robot_1', 1, RoomArguments(endoscope=True)))

    def robot(snapshot):
        return snapshot['robots']['robot_1']

    found = robot(ada.wait(lambda now: robot(now)['age'] is not None and robot(now)['tip']))
    assert len(found['tip']) == len(found['setpoint']) == len(found['waypoint']) == 3
    assert found['vitals']['heart_rate'] > 0.0 and found['force_limit'] > 0.0
    assert found['joints'] and found['procedure'] in PLAN.federation.procedures
    ada.wait(lambda now: robot(now)['driver'] == 'selector')
    ada.wait(lambda now: robot(now)['armed'] and robot(now)['picture'])

    with ada.looking('/ws/picture/robot_1?kind=image') as pictures:
        data = pictures.recv(20.0)
        assert struct.unpack('<d', data[:8])[0] > 0.0 and data[8:10] == b'\xff\xd8'

    answer = bob.act('take_over', robot='robot_1')
    assert answer.status_code == 200 and 'surgeon' in answer.json()['message']
    shown = ada.wait(lambda now: robot(now)['driver'] == 'surgeon')
    assert robot(shown)['taken_by'] == 'Bob'
    assert any('Bob (surgeon): take over' in words for _, words in shown['events'])
    refused = ada.act('hand_back', robot='robot_1')
    assert refused.status_code == 409 and 'Bob' in refused.json()['message']
    assert bob.act('hand_back', robot='robot_1').status_code == 200
    ada.wait(lambda now: robot(now)['driver'] == 'selector')
    refused = ada.act('lock', robot='robot_1', policy='nobody')
    assert refused.status_code == 409 and 'nobody' in refused.json()['message']
    assert ada.act('withdraw', hospital='hospital_1').status_code == 403
    assert journal(directory) == [
        *(('Bob', 'take_over', each) for each in ('asked', 'done')),
        *(('Ada', 'hand_back', each) for each in ('asked', 'refused')),
        *(('Bob', 'hand_back', each) for each in ('asked', 'done')),
        *(('Ada', 'lock', each) for each in ('asked', 'refused')),
        ('Ada', 'withdraw', 'forbidden'),
    ]
    assert verify_acts(directory / JOURNAL) == 9

    runner.stop()
    ada.wait(lambda now: robot(now)['age'] > 0.5)
    gone = ada.act('take_over', robot='robot_1')
    assert gone.status_code == 409 and 'is not there' in gone.json()['message']


def test_federation_is_shown_and_an_operator_orders(page, live):
    page, url = page
    operator = PageClient.of(page, url)
    assert 'roll_back' in operator.session['acts']
    late = live.begin_without_the_last()
    operator.wait(lambda now: now['federation']['phase'] == 'OPEN')
    assert operator.act('pause').json() == {'ok': True, 'message': 'the aggregator took it'}
    operator.wait(lambda now: now['federation']['phase'] == 'PAUSED')
    assert operator.act('resume').status_code == 200
    live.runner.start(hospital_graph(live.settings, late))
    live.finish()

    def told(hospital) -> bool:
        return hospital['alive'] and hospital['epsilon'] and hospital['pays_for'] is not None

    done = operator.wait(
        lambda now: (
            now['federation']['phase'] == 'FINISHED'
            and [each['round'] for each in now['federation']['success']][-1:] == [2]
            and all(map(told, now['federation']['hospitals'].values()))
        ),
    )
    federation = done['federation']
    assert set(federation['success'][-1]['procedures']) == {'palpation', 'retraction'}
    assert federation['hospitals'].keys() == set(PLAN.hospitals)
    for each in federation['hospitals'].values():
        assert each['unit'] == 'patient' and 0.0 < each['epsilon']
