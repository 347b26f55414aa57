# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation as processes over DDS: the same policy as in process, through every fault."""

import os
import signal
import time

from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.deployment.bringup import hospital_graph, server_graph
from fdrl_ros.errors import OrderError
from fdrl_ros.federation.protocol.message import Phase
from fdrl_ros.federation.protocol.orders import sign_order
from fdrl_ros.nodes.parties.ordering import deliver
from fdrl_ros.nodes.watch import Progressed, Spent
import pytest


def test_ends_with_the_policy_of_the_in_process_driver_and_leaves_cleanly(live, reference):
    live.start()
    assert live.finish() == reference.digest
    assert not live.policy(2).secure
    live.wait(lambda: spenders(live) == {'hospital_1', 'hospital_2', 'hospital_3'}, 5.0)
    steps = [e for e in live.heard if isinstance(e, Progressed) and e.stage == 'training']
    assert steps and all(0 < each.step <= each.steps for each in steps)
    live.wait(lambda: 'FINISHED' in live.health('/federation/aggregator').get('summary', ''), 5.0)
    assert live.health('/federation/aggregator')['refused'] == '0'
    codes = live.runner.stop()
    assert set(codes.values()) == {0} and len(codes) == 5


def spenders(live) -> set[str]:
    return {e.hospital for e in live.heard if isinstance(e, Spent) and e.entries >= 40}


def test_hospital_killed_in_training_comes_back_and_spends_nothing_twice(live, reference):
    # Training is short here: nobody begins before the one to be killed is seen.
    late = begin_without_the_last(live)
    live.wait(lambda: live.health('/hospital_2/trainer'), 30.0)
    live.runner.start(hospital_graph(live.settings, late))
    live.wait(
        lambda: any(
            isinstance(e, Progressed) and e.hospital == 'hospital_2' and e.step > 0
            for e in live.heard
            if getattr(e, 'stage', '') == 'training'
        ),
        30.0,
    )
    os.kill(live.runner.process_id('hospital_2.trainer'), signal.SIGKILL)
    assert live.finish() == reference.digest
    live.wait(lambda: live.deaths, 5.0)
    assert [death.label for death in live.deaths] == ['hospital_2.trainer']
    # 20 blocks a round, each reserved once.
    live.wait(lambda: 'hospital_2' in spenders(live), 5.0)
    entries = max(
        e.entries for e in live.heard if isinstance(e, Spent) and e.hospital == 'hospital_2'
    )
    assert entries == 40


def test_aggregator_killed_between_rounds_goes_on(live, reference):
    # Rounds are short here: nobody begins before the policies' sender is seen.
    late = begin_without_the_last(live)
    live.wait(lambda: live.health('/federation/key_authority'), 30.0)
    live.runner.start(hospital_graph(live.settings, late))
    live.wait(lambda: live.policy(1) is not None, 60.0)
    os.kill(live.runner.process_id('federation.aggregator'), signal.SIGKILL)
    assert live.finish() == reference.digest
    live.wait(lambda: live.deaths, 5.0)
    assert [death.label for death in live.deaths] == ['federation.aggregator']


def test_where_no_server_is_an_order_is_refused(live):
    code, said = live.order('pause')
    assert code == 1 and '--domain' in said
    assert 'no service /federation/aggregator/order in DDS domain' in said


def test_only_an_operator_pauses_resumes_and_rolls_back(live, reference):
    late = begin_without_the_last(live)
    domain, now = live.settings.federation_domain, time.time()
    for sender in ('operator', 'hospital_1'):
        order = sign_order(Identity.generate(sender), 'federation', 'stop', now)
        with pytest.raises(OrderError, match='the aggregator refused: unsigned message'):
            deliver(order, domain, '/federation')
    key = live.layout.keys / 'operator' / KEY_FILE
    operator = load_identity(key, 'operator')
    order = sign_order(operator, 'federation', 'stop', now - 3600.0)
    with pytest.raises(OrderError, match='untimely message'):
        deliver(order, domain, '/federation')
    order = sign_order(operator, 'federation', 'pause', time.time())
    deliver(order, domain, '/federation')
    with pytest.raises(OrderError, match='replayed message'):
        deliver(order, domain, '/federation')
    live.wait(lambda: live.phase is Phase.PAUSED, 10.0)
    assert live.order('resume') == (0, 'aggregator: resume')
    live.wait(lambda: live.phase is Phase.OPEN, 10.0)

    code, said = live.order('roll-back', '7')
    assert code == 1 and 'there is no older policy of round 7' in said
    live.runner.start(hospital_graph(live.settings, late))
    assert live.finish() == reference.digest
    assert live.order('roll-back', '1') == (0, 'key_authority: roll back 1')
    live.wait(lambda: live.policy(3) is not None, 10.0)
    older, newest = live.policy(1), live.policy(3)
    assert newest.digest == older.digest != live.policy(2).digest
    assert newest.rolled_back and not newest.contributors


def begin_without_the_last(live) -> str:
    """Start all but one hospital, which is returned: the round stays open until it comes."""
    *early, late = ('hospital_1', 'hospital_2', 'hospital_3')
    live.runner.start(server_graph(live.settings))
    for name in early:
        live.runner.start(hospital_graph(live.settings, name))
    live.wait(lambda: live.phase is Phase.OPEN, 30.0)
    return late
