# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Servers obey operators of the roster alone, each order once and soon after it was signed."""

from dataclasses import replace
from itertools import count
import json

from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import OrderTimeError, ReplayError, RoundError, SignatureError
from fdrl_ros.federation.journal.journal import read
from fdrl_ros.federation.key_authority.server_step import fed_avg, RoundSum, Stepped
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    message_from_bytes,
    Objection,
    Phase,
    RoundStatus,
)
from fdrl_ros.federation.protocol.orders import (
    check_hand_back,
    ORDER_AGE,
    REFUSED_KEPT,
    sign_hand_back,
    sign_order,
)
import numpy as np
import pytest
from support.federation_bench import Bench
from support.fuzzing import state_of
from support.journaled_federation import Journaled

NOON = 1_800_000_000.0
"""Some time, in seconds since 1970."""

ROUND = Phase.OPEN, Phase.SHARE, Phase.TRAIN, Phase.SETTLE, Phase.REVEAL, Phase.SUM


@pytest.fixture
def running():
    """Return a federation in the middle of its second round."""
    bench = Bench(hospitals=4, rounds=3)
    bench.clocks.update(dict.fromkeys(bench.clocks, NOON))
    bench.run_to(Phase.TRAIN, 2)
    return bench


def refuse(bench, order, error, words, party=''):
    """Check that an order is refused and changes nothing."""
    party = bench.parties[party or order.to]
    before = state_of(party)
    with pytest.raises(error, match=words):
        party.handle(order, bench.driver.now)
    assert state_of(party) == before


def resigned(bench, order, sender='operator', identity=None, **changes):
    """Change an order, or who signs it."""
    envelope = {k: changes.pop(k) for k in ('federation', 'counter') if k in changes}
    order = replace(order, **changes)
    order = replace(order, envelope=replace(order.envelope, sender=sender, **envelope))
    return order.signed_by(identity or bench.identities[sender])


@pytest.mark.parametrize('sender', ['hospital_1', 'aggregator', 'key_authority'])
@pytest.mark.parametrize('action', ['pause', 'stop', 'roll_back'])
def test_nobody_but_an_operator_orders_anything(running, sender, action):
    order = resigned(running, running.signed_order(action, to_round=0), sender)
    refuse(running, order, SignatureError, 'cannot speak as operator')


def test_an_order_counts_for_its_federation_and_addressee_alone(running):
    order = running.signed_order('pause')
    other = resigned(running, order, federation='other')
    refuse(running, other, RoundError, "of federation 'other'")
    refuse(running, order, RoundError, "'pause' to 'aggregator', at key_author", 'key_authority')
    led = resigned(running, order, to='key_authority')
    refuse(running, led, RoundError, 'pause', 'key_authority')
    refuse(running, led, RoundError, 'pause', 'aggregator')
    refuse(running, resigned(running, order, action='dance'), RoundError, "'dance'")
    hospital = running.parties['hospital_1']
    with pytest.raises(RoundError, match='Order to a hospital'):
        hospital.handle(order, running.driver.now)


@pytest.mark.parametrize('action', ['pause', 'roll_back'])
def test_an_order_is_taken_once_also_after_a_restart(running, action):
    order = running.signed_order(action, to_round=0)
    party, now = order.to, running.driver.now
    running.parties[party].handle(order, now)
    older = resigned(running, order, counter=order.envelope.counter - 1)
    for again in (order, older):
        refuse(running, again, ReplayError, 'not newer than the last order')
    running.restart(party)
    running.run(ticks=1, until=lambda: False)
    for again in (order, older, message_from_bytes(order.to_bytes())):
        refuse(running, again, ReplayError, 'not newer than the last order')


def test_an_order_that_was_refused_cannot_be_used_later(running):
    order = running.signed_order('roll_back', to_round=1)
    authority = running.key_authority
    with pytest.raises(RoundError, match='no older policy of round 1'):
        authority.handle(order, running.driver.now)
    assert running.run(lambda: authority.round == 2)
    refuse(running, order, ReplayError, 'not newer')


def test_after_a_roll_back_the_server_s_step_begins_anew_from_the_older_weights(tmp_path):
    seen = []

    def step(given: RoundSum) -> Stepped:
        seen.append((given.state, given.weights))
        return Stepped(fed_avg(given).weights, b'after %d' % given.round)

    bench = Bench(tmp_path, rounds=5, step=step)
    assert bench.run(lambda: bench.key_authority.round == 2)
    older = bench.key_authority.state.policy(1).weights
    bench.order('roll_back', to_round=1)
    assert bench.key_authority.state.step_state == b''
    bench.restart('key_authority')
    assert bench.run(lambda: bench.key_authority.round == 5)
    assert [state for state, _ in seen] == [b'', b'after 1', b'', b'after 4']
    np.testing.assert_array_equal(seen[2][1], older)


@pytest.mark.parametrize('off', [-3600.0, -ORDER_AGE - 1.0, ORDER_AGE + 1.0, 3600.0])
def test_an_order_that_was_not_signed_just_now_is_refused(running, off):
    operator = running.identities['operator']
    order = sign_order(operator, 'test', 'pause', NOON + off)
    words = f'{abs(off):.0f} s {"before" if off < 0 else "after"} 2027-01-15 .*set both clocks'
    with pytest.raises(OrderTimeError, match=words):
        running.aggregator.handle(order, running.driver.now)
    refuse(running, order, OrderTimeError, words)
    order = sign_order(operator, 'test', 'pause', NOON + off / abs(off) * (ORDER_AGE - 1.0))
    running.aggregator.handle(order, running.driver.now)
    assert running.aggregator.phase is Phase.PAUSED


@pytest.mark.parametrize('off', [-300.0, 300.0])
def test_an_order_that_was_refused_for_its_time_does_not_count_when_that_comes(running, off):
    order = sign_order(running.identities['operator'], 'test', 'stop', NOON + off)
    with pytest.raises(OrderTimeError):
        running.aggregator.handle(order, running.driver.now)
    running.order('pause')
    running.order('resume')
    running.kill('aggregator')
    running.clocks['aggregator'] += off - 10.0
    running.join('aggregator')
    refuse(running, order, ReplayError, 'refused before' if off > 0 else 'not newer')
    running.clocks['aggregator'] += 20.0
    refuse(running, order, ReplayError, 'refused before' if off > 0 else 'not newer')
    if off > 0:
        running.order('stop')
        assert running.aggregator.phase is Phase.FINISHED


def test_refused_orders_of_the_future_are_kept_until_they_are_past_and_no_more_than_some(running):
    operator, store = running.identities['operator'], running.stores['aggregator']

    def refused(offs):
        for off in offs:
            order = sign_order(operator, 'test', 'pause', NOON + off)
            with pytest.raises(OrderTimeError):
                running.aggregator.handle(order, running.driver.now)
        kept = json.loads(store.get('refused operator'))
        return [counter / 1e6 - NOON for counter in kept]

    offs = [float(off) for off in range(1000, 1000 + REFUSED_KEPT + 50)]
    assert refused(reversed(offs)) == offs[:REFUSED_KEPT]
    running.clocks['aggregator'] = NOON + 1070.0
    assert refused([5000.0]) == [*offs[10:REFUSED_KEPT], 5000.0]


def die_at(patch, owner, name, before):
    """Have a method kill its process after so many calls."""
    method, calls = getattr(owner, name), count()

    def call(*values, **named):
        if next(calls) == before:
            raise KeyboardInterrupt
        return method(*values, **named)

    patch.setattr(owner, name, call)


@pytest.mark.parametrize(
    ('action', 'owner', 'write', 'before'),
    [
        ('withdraw', 'store', 'replace', 0),
        ('withdraw', 'journal', 'append', 0),
        ('withdraw', 'store', 'put', 3),  # of the head of the journal, which has the entry
        ('withdraw', 'store', 'replace', 1),
        ('roll_back', 'store', 'replace', 0),
        ('roll_back', 'journal', 'append', 0),
        ('roll_back', 'store', 'put', 4),
        ('roll_back', 'store', 'replace', 1),
        ('roll_back', 'journal', 'append', 1),
    ],
)
def test_a_kill_loses_no_order_and_takes_none_twice(
    tmp_path, monkeypatch, action, owner, write, before
):
    bench = Journaled(tmp_path, hospitals=4, rounds=2)
    bench.run_to(Phase.TRAIN, 2)
    hospital = 'hospital_2' if action == 'withdraw' else ''
    order = bench.signed_order(action, hospital)
    party = bench.parties[order.to]
    owners = {'store': bench.stores[order.to], 'journal': party.channel.journal}
    with monkeypatch.context() as patch:
        die_at(patch, owners[owner], write, before)
        with pytest.raises(KeyboardInterrupt):
            party.handle(order, bench.driver.now)
    taken = (owner, write, before) != ('store', 'replace', 0)
    bench.restart(order.to)
    if taken:
        refuse(bench, order, ReplayError, 'not newer')
    else:
        bench.parties[order.to].handle(order, bench.driver.now)
    bench.restart(order.to)
    if hospital:
        assert hospital not in bench.aggregator.orders.admitted
    else:
        assert bench.key_authority.round == 2
        assert (bench.key_authority.state.released.weights == bench.start).all()
    assert bench.run()
    told = [each.fields for each in read(bench.paths()[order.to]) if each.kind == 'operator']
    said = 'withdraw' if hospital else 'roll back to round 0'
    assert told == [{'operator': 'operator', 'action': said, 'hospital': hospital}]
    assert not bench.compared().problems


def test_objections_of_one_hospital_do_not_fill_the_log(running):
    channel = running.parties['hospital_1'].channel
    other = running.parties['hospital_2'].channel
    notes = []
    for number in range(1000):
        digest = number.to_bytes(32)
        objection = channel.sign(Objection, 1, 1, roster_serial=9, roster_digest=digest)
        notes += running.aggregator.handle(objection, running.driver.now).notes
    assert 20 <= len(notes) <= 26
    objection = other.sign(Objection, 1, 1, roster_serial=9, roster_digest=bytes(32))
    assert running.aggregator.handle(objection, running.driver.now).notes


def test_an_order_about_an_unknown_hospital_or_policy_does_nothing(running):
    for action, what, words in (
        ('withdraw', {'hospital': 'hospital_9'}, "names no hospital 'hospital_9'"),
        ('admit', {'hospital': ''}, "names no hospital ''"),
        ('roll_back', {'to_round': 9}, 'no older policy of round 9'),
        ('roll_back', {'to_round': -1}, 'no older policy of round -1'),
    ):
        order = running.signed_order(action, **what)
        with pytest.raises(RoundError, match=words):
            running.parties[order.to].handle(order, running.driver.now)
    assert running.aggregator.phase is Phase.TRAIN and running.key_authority.round == 1
    assert running.run()


def test_who_withdraws_hospitals_is_told_how_many_are_left(running):
    running.run_to(Phase.OPEN)
    for name, left in (
        ('hospital_4', '3 hospitals are left, and a round needs all of them'),
        ('hospital_3', '2 hospitals are left, and no round begins with fewer than 3'),
    ):
        notes = running.aggregator.handle(running.signed_order('withdraw', name), 0.0).notes
        assert f'{name} was withdrawn by operator: {left}' in str(notes)


def test_servers_tell_who_was_admitted_and_which_round_was_rolled_back(running):
    running.order('pause')
    running.order('withdraw', 'hospital_4')
    admitted = running.signed_order('admit', 'hospital_4')
    notes = running.aggregator.handle(admitted, running.driver.now).notes
    assert notes == ('hospital_4 was admitted by operator',)
    order = running.signed_order('roll_back', to_round=0)
    effects = running.key_authority.handle(order, running.driver.now)
    (policy,) = (each for each in effects.messages if isinstance(each, GlobalPolicy))
    assert policy.rolled_back and any('rolled back round 2: ' in each for each in effects.notes)
    told = running.aggregator.handle(policy, running.driver.now).messages
    reasons = [each.reason for each in told if isinstance(each, RoundStatus)]
    assert reasons[0].startswith('rolled back: '), reasons


def test_orders_come_over_any_driver_and_stand_in_the_journal_with_who_gave_them(tmp_path):
    bench = Journaled(tmp_path, hospitals=4, rounds=3)
    bench.run_to(Phase.TRAIN)
    bench.driver.post(bench.signed_order('withdraw', 'hospital_4'))
    bench.driver.post(bench.signed_order('pause'))
    bench.run_to(Phase.PAUSED)
    bench.driver.post(bench.signed_order('resume'))
    assert bench.run(lambda: bench.aggregator.phase in ROUND)
    assert not bench.driver.refused
    journal = bench.aggregator.channel.journal
    orders = [each.fields for each in journal.entries() if each.kind == 'operator']
    assert orders == [
        {'operator': 'operator', 'action': 'withdraw', 'hospital': 'hospital_4'},
        {'operator': 'operator', 'action': 'pause', 'hospital': ''},
        {'operator': 'operator', 'action': 'resume', 'hospital': ''},
    ]


def test_an_operator_hands_back_one_take_over_of_one_robot_and_soon():
    bench = Bench(rounds=1)
    operator = bench.identities['operator']
    good = sign_hand_back(operator, 'test', 'robot_1', NOON)

    def check(order, robot='robot_1', since=NOON - 1.0, now=NOON):
        return check_hand_back(order, bench.roster, robot, since, now)

    assert check(good) == NOON
    for order, place, error, words in (
        (replace(good, envelope=replace(good.envelope, signature=b'')), {}, SignatureError, 'bad'),
        (resigned(bench, good, 'hospital_1'), {}, SignatureError, 'cannot speak as operator'),
        (resigned(bench, good, identity=Identity.generate('operator')), {}, SignatureError, 'bad'),
        (good, {'robot': 'robot_2'}, RoundError, "to 'robot_1', at robot_2"),
        (replace(good, to='robot_2'), {'robot': 'robot_2'}, SignatureError, 'bad signature'),
        (good, {'since': NOON}, ReplayError, 'before the arm was taken over'),
        (good, {'since': NOON + 1.0, 'now': NOON + 2.0}, ReplayError, 'before the arm was taken'),
        (good, {'now': NOON + ORDER_AGE + 1}, OrderTimeError, 'set both clocks'),
        (good, {'now': NOON - ORDER_AGE - 1}, OrderTimeError, 'set both clocks'),
        (resigned(bench, good, federation='other'), {}, RoundError, "of federation 'other'"),
    ):
        with pytest.raises(error, match=words):
            check(order, **place)
    pause = bench.signed_order('pause')
    with pytest.raises(RoundError, match='the order'):
        check(replace(pause, to='robot_1').signed_by(operator))
