# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl security`: a drill from the first enclave to a revoked hospital, and every refusal."""

from click.testing import CliRunner
from fdrl_ros.cli import main
import pytest

DECLARED = [word for i in range(1, 5) for word in ('--hospital', f'hospital_{i}=30')]


def fdrl(*words):
    return CliRunner().invoke(main, [str(each) for each in words])


def done(*words):
    result = fdrl(*words)
    assert result.exit_code == 0, result.output + result.stderr
    return result.stdout


def refused(*words):
    result = fdrl(*words)
    assert result.exit_code == 1 and result.stderr.startswith('fdrl: '), result.output
    return result.stderr


@pytest.fixture
def keys(tmp_path):
    done('keys', 'init', tmp_path / 'keys', *DECLARED)
    return tmp_path / 'keys'


def test_from_the_first_enclave_to_a_revoked_hospital(keys):
    first = done('security', 'init', keys, '--robots', 'robot_1, robot_2')
    assert first.startswith('made 28 enclaves')
    assert done('security', 'check', keys) == '28 enclaves: all as roster and graph want\n'
    assert '`fdrl security update`' in done('keys', 'revoke', keys, 'hospital_2')
    faults = refused('security', 'check', keys).splitlines()
    assert len(faults) > 1 and all(each.startswith('fdrl: /') for each in faults)
    assert 'new keys' not in done('security', 'update', keys)
    assert '/operator' in done('security', 'rotate', keys, 'operator').splitlines()[0]
    assert 'hospital_3 is revoked' in done('security', 'revoke', keys, 'hospital_3')
    assert '`fdrl security restore`' in refused('security', 'rotate', keys, 'hospital_3')
    restored = done('security', 'restore', keys, 'hospital_3')
    assert restored.startswith('new keys: /hospital_3/trainer\nidentity_ca.cert.pem: sha256 ')
    assert 'robot_1 is revoked' in done('security', 'revoke', keys, 'robot_1')
    assert '/robot_3/env' in done('security', 'update', keys, '--robots', 'robot_2, robot_3')
    everything = done('security', 'rotate', keys)
    assert 'identity_ca.cert.pem: sha256 ' in everything and '/hospital_1/trainer' in everything
    assert done('security', 'check', keys).startswith('27 enclaves')


@pytest.mark.parametrize(
    ('words', 'reason'),
    [
        (('check',), 'is no keystore: `fdrl security init` makes one'),
        (('update',), 'is no keystore'),
        (('init', '--robots', 'robot_1=hospital_9'), "--robots 'robot_1=hospital_9'"),
        (('init', '--robot-domain', '50'), "another domain than the federation's"),
        (('init', '--valid-days', '9999'), '--valid-days 9999'),
    ],
)
def test_what_cannot_be_is_refused_in_a_line_and_makes_nothing(keys, words, reason):
    command, *rest = words
    said = refused('security', command, keys, *rest)
    assert reason in said and said.count('\n') == 1
    assert not (keys / 'dds-security').exists()
    assert not (keys / 'root' / 'identity_ca.key').exists()


def test_unknown_parties_and_a_second_keystore_are_refused(keys):
    done('security', 'init', keys, '--robots', '')
    assert 'changes it' in refused('security', 'init', keys)
    for command in ('rotate', 'revoke'):
        assert 'did you mean hospital_' in refused('security', command, keys, 'hospital_11')
