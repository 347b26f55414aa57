# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The keystore in two implementations of DDS that enforce it: Cyclone DDS and Fast DDS.

Participants get the enclaves of nodes and the names of their topics; ROS 2 itself takes no part.
"""

from dataclasses import replace
import os
from pathlib import Path
import shutil
import subprocess

from fdrl_ros.crypto.keys.keystore import make_federation, NewFederation
from fdrl_ros.deployment.security.enclaves import (
    Keystore,
    KeystoreSettings,
    make_keystore,
    update_keystore,
)
import pytest

SUPPORT = Path(__file__).parents[1] / 'support'
HOSPITALS = ('hospital_1', 'hospital_2', 'hospital_3')
PATIENCE = 5.0
"""Time for two participants to find and authenticate each other, second; it takes a tenth."""

ONE_HOST = (
    '<CycloneDDS><Domain Id="any"><General><Interfaces><NetworkInterface name="lo" '
    'multicast="true"/></Interfaces></General></Domain></CycloneDDS>'
)


COMPILERS = {
    'cyclonedds': (
        ('idlc', SUPPORT / 'dds_participant.idl'),
        ('cc', 'dds_participant.c', SUPPORT / 'dds_participant.c', '-I.', '-lddsc'),
    ),
    'fastdds': (
        ('c++', '-std=c++17', SUPPORT / 'dds_participant.cpp', '-lfastrtps', '-lfastcdr'),
    ),
}
"""What compiles the participant of each implementation of DDS."""

NEEDED = {
    'cyclonedds': ('dds/dds.h', 'cyclonedds-dev and cyclonedds-tools'),
    'fastdds': ('fastdds/dds/domain/DomainParticipant.hpp', 'libfastrtps-dev'),
}
"""A header of each, and the packages of Debian and Ubuntu that have it."""


def is_here(header):
    """Tell whether the compiler finds a header."""
    words = ['c++', '-E', '-x', 'c++', '-include', header, '/dev/null']
    return subprocess.run(words, capture_output=True).returncode == 0


@pytest.fixture(scope='module', params=COMPILERS)
def participant(request, tmp_path_factory):
    """Compile the participant, and return it with the variables of its process."""
    header, packages = NEEDED[request.param]
    if not shutil.which('c++') or not is_here(header):
        pytest.skip(f'no {request.param} here ({packages})')
    folder = tmp_path_factory.mktemp('participant')
    *others, last = COMPILERS[request.param]
    for words in (*others, (*last, '-o', 'participant')):
        subprocess.run(words, cwd=folder, check=True)
    named = subprocess.run(['cc', '-print-file-name=libddsc.so'], capture_output=True, text=True)
    library = Path(named.stdout.strip()).resolve().parent
    plugins = {str(each.parent) for each in library.rglob('libdds_security_auth.so*')}
    path = ':'.join((*plugins, os.environ.get('LD_LIBRARY_PATH', '')))
    variables = {'LD_LIBRARY_PATH': path, 'CYCLONEDDS_URI': ONE_HOST}
    return folder / 'participant', {**os.environ, **variables}


@pytest.fixture(scope='module')
def make_keys(tmp_path_factory, federation_domain, robot_domain):
    """Return what makes the keys of a federation of its own."""

    def make(name):
        keys = tmp_path_factory.mktemp(name) / 'keys'
        make_federation(keys, NewFederation(dict.fromkeys(HOSPITALS, 30)))
        settings = KeystoreSettings(
            robots='robot_1=hospital_1, robot_2',
            federation_domain=federation_domain,
            robot_domain=robot_domain,
        )
        make_keystore(keys, settings)
        return keys

    return make


@pytest.fixture(scope='module')
def keys(make_keys):
    return make_keys('federation')


@pytest.fixture(scope='module')
def exchange(participant):
    """Return what has one enclave publish to another, and tells what came of both."""
    program, variables = participant

    def run(writer, reader, topic, domain):
        processes = [
            subprocess.Popen(
                [program, place or '-', str(domain), verb, topic, str(PATIENCE)],
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for verb, place in (('publish', writer), ('subscribe', reader))
        ]
        writing, reading = processes
        told = last_line(reading)
        if told == 'received':
            writing.kill()
        return last_line(writing), told

    return run


def last_line(process):
    """Return what a participant told; the lines before are the middleware's."""
    output, _ = process.communicate(timeout=10 * PATIENCE)
    return output.splitlines()[-1] if output else ''


def heard(told):
    """Tell whether the reader heard the writer; who may not is refused, or left alone."""
    return told[1] == 'received'


SELECTOR, ENV, SERVO = '/robot_1/selector', '/robot_1/env', 'rt/robot_1/servo_cp'
POLICY, HOME = 'rt/federation/policy', 'rt/hospital_1/home'


@pytest.mark.parametrize(
    ('writer', 'reader', 'topic', 'may'),
    [
        (SELECTOR, ENV, SERVO, True),
        ('/hospital_1/trainer', '/robot_2/selector', POLICY, True),
        ('/hospital_1/trainer', SELECTOR, HOME, True),
        ('/robot_1/client', ENV, SERVO, True),
        # By a pattern of all services of a node.
        ('/operator', ENV, 'rq/robot_1/env/resetRequest', True),
        ('', ENV, SERVO, False),
        (SELECTOR, '', SERVO, False),
        ('/robot_2/selector', ENV, SERVO, False),
        (ENV, ENV, SERVO, False),
        ('/hospital_1/trainer', '/robot_2/selector', HOME, False),
        # Allowed in the trainer's other domain alone.
        ('/hospital_2/trainer', '/hospital_1/trainer', POLICY, False),
        ('/federation/aggregator', '/hospital_1/trainer', 'rt/federation/round', False),
    ],
)
def test_robots_hear_who_may_speak_and_nobody_else(
    exchange, keys, robot_domain, writer, reader, topic, may
):
    places = [str(Keystore(keys).enclave(each)) if each else '' for each in (writer, reader)]
    assert heard(exchange(*places, topic, robot_domain)) == may


def test_operators_are_not_the_aggregator(exchange, keys, federation_domain):
    operator, asked = (
        Keystore(keys).enclave(e) for e in ('/operator', '/federation/key_authority')
    )
    for name, may in (('order', True), ('decrypt', False)):
        topic = f'rq/federation/key_authority/{name}Request'
        assert heard(exchange(operator, asked, topic, federation_domain)) == may


def test_the_trainer_takes_part_in_the_federations_domain_too(exchange, keys, federation_domain):
    aggregator = Keystore(keys).enclave('/federation/aggregator')
    trainer = Keystore(keys).enclave('/hospital_1/trainer')
    assert heard(exchange(aggregator, trainer, 'rt/federation/round', federation_domain))


def test_revoked_and_foreign_keys_speak_to_nobody(exchange, make_keys, tmp_path, robot_domain):
    keys, foreign = make_keys('own'), make_keys('foreign')
    arm, selector = Keystore(keys).enclave(ENV), Keystore(keys).enclave(SELECTOR)
    stolen = shutil.copytree(selector, tmp_path / 'stolen')
    assert heard(exchange(stolen, arm, SERVO, robot_domain))
    update_keystore(keys, rotate='robot_1')
    assert not heard(exchange(stolen, arm, SERVO, robot_domain))
    assert heard(exchange(selector, arm, SERVO, robot_domain))
    assert not heard(exchange(Keystore(foreign).enclave(SELECTOR), arm, SERVO, robot_domain))


def test_who_keeps_rules_of_before_a_right_was_taken_away_is_left_alone(
    exchange, make_keys, tmp_path, robot_domain
):
    keys = make_keys('smaller')
    trainer, arm = Keystore(keys).enclave('/hospital_1/trainer'), Keystore(keys).enclave(ENV)
    kept = shutil.copytree(Keystore(keys).enclave(SELECTOR), tmp_path / 'kept')
    assert heard(exchange(trainer, kept, HOME, robot_domain))
    update_keystore(keys, change=lambda settings: replace(settings, robots='robot_1, robot_2'))
    # Its certificate is not revoked, and its rules were signed.
    assert not heard(exchange(trainer, kept, HOME, robot_domain))
    newer = shutil.copytree(Keystore(keys).enclave(SELECTOR), tmp_path / 'newer')
    assert heard(exchange(newer, arm, SERVO, robot_domain))
    shutil.copy2(kept / 'permissions.p7s', newer)
    assert not heard(exchange(newer, arm, SERVO, robot_domain))


@pytest.mark.parametrize('name', ['permissions.p7s', 'governance.p7s'])
def test_rules_that_were_changed_let_nobody_in(exchange, keys, tmp_path, robot_domain, name):
    enclave = shutil.copytree(Keystore(keys).enclave(ENV), tmp_path / 'changed')
    text = (enclave / name).read_bytes()
    changed = text.replace(b'rt/clock', b'rt/tf').replace(b'ENCRYPT', b'NONE')
    assert text != changed and (enclave / name).write_bytes(changed)
    assert exchange(enclave, '', 'rt/clock', robot_domain)[0].startswith('participant refused')
