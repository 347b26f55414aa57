# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The table of interfaces agrees with the parties, and gives each node its own names."""

from dataclasses import replace

from fdrl_ros.deployment.bringup import NodeSpec
from fdrl_ros.deployment.interfaces import (
    Domain,
    Endpoints,
    FOXGLOVE,
    in_words,
    INTERFACES,
    MONITOR,
    OBSERVER,
    OPERATOR,
    Places,
    RECORDER,
    SEGMENTER,
    sent_by,
    Use,
    uses_of,
    Verb,
)
from fdrl_ros.deployment.launch_files import graph as launch_graph
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.key_authority.key_authority import KeyAuthority
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.channel import OBSERVED
from fdrl_ros.surgery.data.bag import ARM_STATE, EPISODE, TOPICS, VISIBILITY
import pytest

HOSPITALS = ('hospital_1', 'hospital_2', 'hospital_3')
ROLES = {'aggregator': 'aggregator', 'key_authority': 'key_authority', 'hospital': 'trainer'}
# Services, and what travels below a hospital's namespace.
ELSEWHERE = {protocol.DecryptRequest, protocol.HospitalPolicy, protocol.Order}


def graph() -> tuple[NodeSpec, ...]:
    return launch_graph('federation', {'robots': '2', 'description': 'false'})


def uses(name: str, domain: Domain) -> tuple[Use, ...]:
    (spec,) = (each for each in graph() if each.full_name == name)
    return uses_of(spec, Places.of(graph()), domain)


def names(name: str, domain: Domain, verb: Verb) -> set[str]:
    return {each.name for each in uses(name, domain) if each.verb is verb}


@pytest.mark.parametrize(
    ('executable', 'takes'),
    [
        ('aggregator', Aggregator.takes),
        ('key_authority', KeyAuthority.takes),
        ('trainer', Hospital.takes),
        (OBSERVER, OBSERVED),
    ],
)
def test_parties_subscribe_to_what_they_take_from_who_may_send_it(executable, takes):
    lines = [line for line in INTERFACES[Domain.FEDERATION] if line.message is not None]
    heard = {line.message for line in lines if executable in line.to}
    assert heard == takes.keys() - ELSEWHERE
    for kind in heard:
        senders = {
            each
            for line in lines
            if line.message is kind and executable in line.to
            for each in line.by
        }
        assert senders == {ROLES[role] for role in takes[kind]}, kind


def test_every_kind_of_message_has_a_sender_and_a_topic():
    sent = {kind for each in ROLES.values() for kind in sent_by(each)}
    assert sent == set(protocol.Message.__subclasses__()) - ELSEWHERE


def test_what_one_robot_or_hospital_has_is_not_allowed_to_another():
    commands = names('/robot_1/selector', Domain.ROBOTS, Verb.PUBLISH)
    assert '/robot_1/servo_cp' in commands
    assert not any(each.startswith('/robot_2') for each in commands)
    heard = names('/hospital_1/trainer', Domain.FEDERATION, Verb.SUBSCRIBE)
    assert '/federation/delivery/hospital_1' in heard
    assert '/federation/delivery/hospital_2' not in heard
    # Nothing comes back from the robots.
    assert not names('/hospital_1/trainer', Domain.ROBOTS, Verb.SUBSCRIBE)
    assert not uses('/federation/aggregator', Domain.ROBOTS)
    assert not uses('/robot_1/selector', Domain.FEDERATION)


def test_a_home_policy_goes_to_robots_of_its_hospital_alone():
    assert '/hospital_1/home' in names('/hospital_1/trainer', Domain.ROBOTS, Verb.PUBLISH)
    (selector,) = (each for each in graph() if each.full_name == '/robot_1/selector')
    own = replace(selector, parameters={'hospital': 'hospital_2'})
    for spec, homes in (
        (selector, set()),
        (own, {'/hospital_2/home', '/hospital_2/home/weights'}),
    ):
        found = uses_of(spec, Places.of(graph()), Domain.ROBOTS)
        assert {each.name for each in found if '/home' in each.name} == homes


def test_what_records_a_robot_subscribes_to_all_that_a_bag_holds_and_to_no_other_robot():
    recorder = NodeSpec(RECORDER, '/robot_1', RECORDER, 51)
    found = uses_of(recorder, Places.of(graph()), Domain.ROBOTS)
    assert {each.name for each in found if not each.name.startswith('/robot_1/')} == {
        *('/parameter_events', '/diagnostics', '/clock')
    }
    topics = {*TOPICS, ARM_STATE, VISIBILITY, 'risk', 'robot_description'} - {EPISODE}
    assert {f'/robot_1/{each}' for each in topics} < {each.name for each in found}
    read_only(found)
    assert not uses_of(recorder, Places.of(graph()), Domain.FEDERATION)


def test_what_shows_topics_to_foxglove_sees_no_more_of_a_federation_than_observers():
    shower, observer = (NodeSpec(each, '/', each, 50) for each in (FOXGLOVE, OBSERVER))
    places = Places.of(graph())
    found = {domain: uses_of(shower, places, domain) for domain in Domain}
    for uses in found.values():
        read_only(uses)
    seen = {each.name for each in uses_of(observer, places, Domain.FEDERATION)}
    federation = {each.name for each in found[Domain.FEDERATION]}
    assert seen - federation == {
        '/federation/update',
        *(each for each in seen if each.endswith('/weights')),
    }
    assert federation < seen
    robots = {each.name for each in found[Domain.ROBOTS]}
    assert {'/robot_1/risk', '/robot_1/servo_cp', '/clock', '/diagnostics'} < robots
    assert not [each for each in robots if '/home' in each or each.endswith('policy')]


def read_only(uses):
    """Assert that nothing is called or published, but for what every node of ROS has."""
    published = [each for each in uses if each.verb is not Verb.SUBSCRIBE]
    assert [(each.verb, each.name) for each in published] == [(Verb.PUBLISH, '/parameter_events')]


def test_operators_call_what_nodes_serve_and_serve_nothing_else():
    operator = NodeSpec(OPERATOR, '/', 'alice', 50)
    others = (NodeSpec(e, f'/robot_{i}', e, 51) for i in (1, 2) for e in (MONITOR, SEGMENTER))
    specs = (*graph(), *others)
    for domain in Domain:
        found = uses_of(operator, Places.of(specs), domain)
        called = {each.name for each in found if each.verb is Verb.REQUEST}
        served = {
            each.name
            for spec in specs
            for each in uses_of(spec, Places.of(specs), domain)
            if each.verb is Verb.REPLY
        }
        # That is what the aggregator asks the key authority.
        assert served - called <= {'/federation/key_authority/decrypt'} and called <= served
        assert not [each for each in found if each.verb is Verb.REPLY]


def test_an_action_is_three_services_and_two_topics():
    serves = Endpoints.of([Use(Verb.EXECUTE, '/robot_1/env/operate')])
    calls = Endpoints.of([Use(Verb.CALL, '/robot_1/env/operate')])
    assert serves == Endpoints(calls.subscribe, calls.publish)
    assert len(serves.publish) == 5 and len(serves.subscribe) == 3
    assert 'rt/robot_1/env/operate/_action/feedback' in serves.publish
    assert 'rq/robot_1/env/operate/_action/send_goalRequest' in serves.subscribe


def test_dds_topics_are_told_in_words_of_ros():
    assert in_words('publish', 'rt/a') == 'publish /a'
    assert in_words('subscribe', 'rt/a') == 'subscribe to /a'
    assert in_words('publish', 'rr/aReply') == in_words('subscribe', 'rq/aRequest') == 'serve /a'
    assert in_words('publish', 'rq/aRequest') == in_words('subscribe', 'rr/aReply') == 'call /a'


def test_nothing_is_in_the_table_twice():
    for lines in INTERFACES.values():
        for side in ('by', 'to'):
            seen = [(line.name, each) for line in lines for each in getattr(line, side)]
            assert len(seen) == len(set(seen))
