# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl operator` signs with an operator's key of a valid roster, or says what is wrong."""

import os

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.crypto.keys.keystore import load_passphrase, make_federation, NewFederation
from fdrl_ros.crypto.keys.rotation import change_passphrase, RosterChanges
from fdrl_ros.runtime.durable import write_secret
import pytest

HOSPITALS = ('hospital_1', 'hospital_2', 'hospital_3')


@pytest.fixture
def keys(tmp_path):
    make_federation(tmp_path / 'keys', NewFederation(dict.fromkeys(HOSPITALS, 5)))
    return tmp_path / 'keys'


def refused(keys, *words):
    """Return the one line that an order ends with before anything is sent."""
    done = CliRunner().invoke(
        main, ['operator', 'pause', '--directory', str(keys), '--domain', '99', *words]
    )
    assert done.exit_code == 1
    (line,) = done.output.splitlines()
    return line


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        (('--name', 'hospital_1'), 'hospital_1 is no operator in roster 1: hospital'),
        (('--name', 'nobody'), "'nobody' is not in roster 1"),
    ],
)
def test_only_an_operator_of_the_roster_orders(keys, words, said):
    assert said in refused(keys, *words)


@pytest.mark.parametrize(
    'words', [('--domain', '3'), ('--namespace', '/a'), ('--hosts', 'several')]
)
def test_flags_about_ros_beside_a_router_are_refused(keys, words):
    order = ['operator', 'pause', '--directory', str(keys), '--router', 'tls/127.0.0.1:7447']
    done = CliRunner().invoke(main, [*order, *words])
    assert done.exit_code == 2
    assert f'{words[0]} is about ROS 2: leave it out beside --router' in done.output


def test_without_the_operator_s_key_it_says_where_it_looked(keys):
    (keys / 'operator' / 'identity.key').unlink()
    line = refused(keys)
    assert f'{keys / "operator" / "identity.key"} is not there' in line


def test_an_older_roster_or_another_key_is_refused(keys):
    old = (keys / 'operator' / 'identity.key').read_bytes()
    RosterChanges(keys).rotate('operator')
    (keys / 'operator' / 'identity.key').write_bytes(old)
    assert 'roster 2 holds another key of operator' in refused(keys)


@pytest.mark.usefixtures('quick_scrypt')
def test_an_encrypted_key_asks_for_its_passphrase(keys, tmp_path):
    write_secret(tmp_path / 'passphrase', b'correct horse\n')
    write_secret(tmp_path / 'wrong', b'battery staple\n')
    change_passphrase(keys, None, load_passphrase(tmp_path / 'passphrase'))
    assert 'passphrase' in refused(keys)
    assert 'passphrase' in refused(keys, '--passphrase-file', str(tmp_path / 'wrong'))


def test_a_directory_without_keys_is_refused(tmp_path):
    assert os.fspath(tmp_path) in refused(tmp_path)
