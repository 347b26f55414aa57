# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation as processes over DDS: the same policy as in process, through every fault."""

import os
from pathlib import Path
import signal
import socket
from urllib.request import urlopen

from fdrl_ros.crypto.keys.key_file import label
from fdrl_ros.crypto.keys.rotation import private_keys
from fdrl_ros.deployment.bringup import federation_graph, hospital_graph
from fdrl_ros.deployment.events import HospitalProgress, PrivacySpent
from fdrl_ros.nodes.common import service_call
from node.conftest import PLAN


def spenders(live) -> set[str]:
    return {e.hospital for e in live.heard if isinstance(e, PrivacySpent) and e.entries >= 40}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return int(found.getsockname()[1])


def test_with_encrypted_keys_it_ends_with_the_policy_of_the_in_process_driver(
    live, reference, encrypted
):
    port = free_port()
    site = Path(encrypted.parameters)
    own = f'/federation/aggregator: {{ros__parameters: {{metrics_port: {port}}}}}'
    site.write_text(f'{site.read_text()}\n{own}\n')
    live.runner.start(federation_graph(encrypted, PLAN.hospitals))
    assert live.finish() == reference.digest
    assert not live.policy(2).secure
    live.wait(lambda: spenders(live) == {'hospital_1', 'hospital_2', 'hospital_3'})
    steps = [e for e in live.heard if isinstance(e, HospitalProgress) and e.stage == 'training']
    assert steps and all(0 < each.step <= each.steps for each in steps)
    assert live.wait_for_health('/federation/aggregator', 'FINISHED')['refused'] == '0'
    with urlopen(f'http://127.0.0.1:{port}/metrics', timeout=5) as answer:
        told = answer.read().decode()
    for words in (
        'fdrl_round 2.0',
        'fdrl_phase{phase="FINISHED"} 1.0',
        'fdrl_survivors 3.0',
        'fdrl_update_bytes_total{hospital="hospital_2"} ',
        'fdrl_epsilon{hospital="hospital_3",unit="patient"} ',
    ):
        assert words in told, told
    codes = live.runner.stop()
    assert set(codes.values()) == {0} and len(codes) == 5
    keys = live.layout.keys
    names = private_keys(keys)
    assert len(names) == 8
    assert all(label((keys / name).read_bytes(), name).sealed for name in names)
    logs = ''.join(each.read_text() for each in live.layout.log.glob('*.log'))
    assert logs and 'horse' not in logs


def test_hospital_killed_in_training_and_aggregator_between_rounds_come_back(live, reference):
    # All is short here: nobody begins before those who are to be killed are seen.
    late = live.begin_without_the_last()
    for node in ('/hospital_2/trainer', '/federation/key_authority'):
        live.wait(lambda node=node: live.health(node))
    live.runner.start(hospital_graph(live.settings, late))
    live.wait(
        lambda: any(
            isinstance(e, HospitalProgress) and e.hospital == 'hospital_2' and e.step > 0
            for e in live.heard
            if getattr(e, 'stage', '') == 'training'
        ),
    )
    os.kill(live.runner.process_id('hospital_2.trainer'), signal.SIGKILL)
    live.wait(lambda: live.policy(1) is not None)
    os.kill(live.runner.process_id('federation.aggregator'), signal.SIGKILL)
    assert live.finish() == reference.digest
    live.wait(lambda: len(live.deaths) == 2)
    labels = [death.label for death in live.deaths]
    assert labels == ['hospital_2.trainer', 'federation.aggregator']
    # 20 blocks a round, each reserved once.
    live.wait(lambda: 'hospital_2' in spenders(live))
    entries = [
        e.entries for e in live.heard if isinstance(e, PrivacySpent) and e.hospital == 'hospital_2'
    ]
    assert max(entries) == 40


def test_where_no_server_is_an_order_is_refused(live, monkeypatch):
    monkeypatch.setattr(service_call, 'PATIENCE', 0.5)
    code, said = live.order('pause')
    assert code == 1 and '--domain' in said
    assert 'no service /federation/aggregator/order in DDS domain' in said
