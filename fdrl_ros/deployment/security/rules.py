# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What each enclave may do, in the documents that SROS2 and DDS Security read.

SROS2 makes permissions for one domain out of a policy. A trainer lives in two, with other topics
in each, so there is a policy for each domain, and the permissions hold one rule a domain.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import groupby
import re
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from fdrl_ros.deployment.bringup import NODES, NodeSpec
from fdrl_ros.deployment.interfaces import (
    Domain,
    Endpoints,
    GUESTS,
    in_words,
    MONITOR,
    node_name,
    open_nodes,
    OPERATOR,
    Places,
    READERS,
    SEGMENTER,
    uses_of,
    Verb,
)

Numbers = Mapping[Domain, int]
"""The number of each DDS domain."""

_ELEMENTS = {
    Verb.PUBLISH: ('topics', 'topic'),
    Verb.SUBSCRIBE: ('topics', 'topic'),
    Verb.REPLY: ('services', 'service'),
    Verb.REQUEST: ('services', 'service'),
    Verb.EXECUTE: ('actions', 'action'),
    Verb.CALL: ('actions', 'action'),
}

_DISCOVERY: Final = 'ros_discovery_info'
"""DDS topic on which ROS 2 tells which endpoint belongs to which node; every node has it."""

_XSI: Final = 'http://www.w3.org/2001/XMLSchema-instance'
_SCHEMA: Final = 'http://www.omg.org/spec/DDS-SECURITY/20170901/omg_shared_ca_'

GOVERNANCE: Final = {
    'allow_unauthenticated_participants': 'false',
    'enable_join_access_control': 'true',
    'discovery_protection_kind': 'ENCRYPT',
    'liveliness_protection_kind': 'ENCRYPT',
    'rtps_protection_kind': 'ENCRYPT_WITH_ORIGIN_AUTHENTICATION',
}
"""
How a domain is protected: strangers neither join it nor read what is in it.

A packet has a tag of its own for each who gets it, made by a key that only the two share. So who
hears a writer, and has its key, cannot speak for it.
"""

TOPIC_GOVERNANCE: Final = {
    'enable_discovery_protection': 'true',
    'enable_liveliness_protection': 'true',
    'enable_read_access_control': 'true',
    'enable_write_access_control': 'true',
    'metadata_protection_kind': 'ENCRYPT',
    'data_protection_kind': 'NONE',
}
"""
How every topic is protected: with a key that its writer gives to permitted readers alone.

`metadata` is the whole submessage with its payload. To encrypt the payload once more (`data`) only
helps services that store samples without reading them, and there is none.
"""

_OF_LAUNCH: Final = re.compile(r'/launch_ros_\d+')
"""Node of a launch, which joins no domain that is secured."""

Rule = tuple[int, str, str]
"""What a permission allows: number of the domain, publish or subscribe, DDS topic."""


def policy(specs: Iterable[NodeSpec], places: Places, domain: Domain) -> bytes:
    """Return the SROS2 policy of a domain: every enclave that joins it."""
    root = Element('policy', version='0.2.0')
    enclaves = SubElement(root, 'enclaves')
    for spec in specs:
        uses = uses_of(spec, places, domain)
        if not uses:
            continue
        enclave = SubElement(enclaves, 'enclave', path=spec.full_name)
        profiles = SubElement(enclave, 'profiles')
        profile = SubElement(profiles, 'profile', ns=spec.namespace, node=spec.name)
        for verb, some in groupby(uses, lambda use: use.verb):
            several, one = _ELEMENTS[verb]
            group = SubElement(profile, several, {str(verb): 'ALLOW'})
            for use in some:
                SubElement(group, one).text = use.name
    return _text(root)


def permissions(
    spec: NodeSpec, places: Places, numbers: Numbers, validity: tuple[datetime, datetime]
) -> bytes:
    """
    Return the permissions of an enclave: one rule for each of its domains; the rest is denied.

    :param validity: start and end, UTC: those of its certificate.
    """
    root = _document('permissions')
    grant = SubElement(SubElement(root, 'permissions'), 'grant', name=spec.full_name)
    SubElement(grant, 'subject_name').text = f'CN={spec.full_name}'
    during = SubElement(grant, 'validity')
    for name, at in zip(('not_before', 'not_after'), validity, strict=True):
        SubElement(during, name).text = f'{at:%Y-%m-%dT%H:%M:%S}'
    for domain, number in numbers.items():
        uses = uses_of(spec, places, domain)
        if not uses:
            continue
        rule = SubElement(grant, 'allow_rule')
        SubElement(SubElement(rule, 'domains'), 'id').text = str(number)
        endpoints = Endpoints.of(uses)
        if spec.executable == OPERATOR:
            endpoints = endpoints.in_patterns(open_nodes(places, domain))
        for what, names in (
            ('publish', endpoints.publish),
            ('subscribe', endpoints.subscribe),
        ):
            topics = SubElement(SubElement(rule, what), 'topics')
            for name in sorted({*names, _DISCOVERY}):
                SubElement(topics, 'topic').text = name
    SubElement(grant, 'default').text = 'DENY'
    return _text(root, '')  # without blanks: it has to fit into a packet


def governance(numbers: Numbers) -> bytes:
    """Return how the domains are protected, the same for all participants."""
    root = _document('governance')
    rule = SubElement(SubElement(root, 'domain_access_rules'), 'domain_rule')
    domains = SubElement(rule, 'domains')
    for number in sorted(numbers.values()):
        SubElement(domains, 'id').text = str(number)
    for name, value in GOVERNANCE.items():
        SubElement(rule, name).text = value
    topics = SubElement(SubElement(rule, 'topic_access_rules'), 'topic_rule')
    SubElement(topics, 'topic_expression').text = '*'
    for name, value in TOPIC_GOVERNANCE.items():
        SubElement(topics, name).text = value
    return _text(root)


def rules_in(text: bytes) -> frozenset[Rule]:
    """
    Return what permissions allow, in any order of writing.

    :param text: of a document whose signature was verified.
    """
    found = set()
    for rule in ElementTree.fromstring(text).iter('allow_rule'):
        for number in rule.iterfind('domains/id'):
            for what in ('publish', 'subscribe'):
                for topic in rule.iterfind(f'{what}/topics/topic'):
                    found.add((int(number.text or -1), what, topic.text or ''))
    return frozenset(found)


def difference(found: bytes, expected: bytes) -> str:
    """Say in which way permissions are not as expected; empty if they are."""
    if found == expected:
        return ''
    before, after = rules_in(found), rules_in(expected)
    words = [
        f'{verb} to {each} in domain {number}'
        for verb, rules in (('allow', before - after), ('do not allow', after - before))
        for number, each in sorted({(number, in_words(*rest)) for number, *rest in rules})
    ]
    if not words:
        return 'have another subject or validity'
    return words[0] + (f', and {len(words) - 1} more' if words[1:] else '')


def live_faults(
    specs: Iterable[NodeSpec], places: Places, domain: Domain, live: Mapping[str, Endpoints]
) -> list[str]:
    """
    Compare what nodes have with what their policies allow, both ways.

    :param live: each node's endpoints, by its full name, as they are in the domain now.
    :returns: a line for each thing that is not allowed, or allowed and not there.
    """
    known = {node_name(spec): spec for spec in specs if uses_of(spec, places, domain)}
    found = [
        f'{name} is not in the {domain} domain'
        for name, spec in known.items()
        if spec.executable in NODES
        and spec.executable not in (MONITOR, SEGMENTER)
        and name not in live
        # A real arm has a monitor in place of the simulated env.
        and not (spec.executable == 'env' and f'{spec.namespace}/{MONITOR}' in live)
    ]
    for name, has in sorted(live.items()):
        if _OF_LAUNCH.fullmatch(name):
            continue
        if name not in known:
            found.append(f'{name} is in the {domain} domain and has no enclave')
            continue
        uses, lines = uses_of(known[name], places, domain), set[str]()
        allowed = Endpoints.of(uses)
        # People and programs of others do what they like of what they may.
        needed = (
            Endpoints.of(use for use in uses if not use.optional)
            if known[name].executable not in (OPERATOR, *READERS, *GUESTS)
            else Endpoints()
        )
        for verb, real, may, must in (
            ('publish', has.publish, allowed.publish, needed.publish),
            ('subscribe', has.subscribe, allowed.subscribe, needed.subscribe),
        ):
            extra = {in_words(verb, topic) for topic in real - may}
            unused = {in_words(verb, topic) for topic in must - real}
            where = f'in the {domain} domain'
            lines |= {f'{name} may not {each} {where}, and does' for each in extra}
            lines |= {f'{name} may {each} {where}, and does not' for each in unused}
        found += sorted(lines)
    return found


def _document(kind: str) -> Element:
    ElementTree.register_namespace('xsi', _XSI)
    return Element('dds', {f'{{{_XSI}}}noNamespaceSchemaLocation': f'{_SCHEMA}{kind}.xsd'})


def _text(root: Element, space: str = '  ') -> bytes:
    ElementTree.indent(root, space)
    return ElementTree.tostring(root, 'utf-8', xml_declaration=True) + b'\n'
