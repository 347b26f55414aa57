# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl keys`: what it makes, shows, changes and refuses; federations go on with what it left."""

import json
import os
from pathlib import Path
import shlex
import shutil
import stat
import sys
import time

import click
from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.crypto.keys import key_file
from fdrl_ros.crypto.keys.key_file import label
from fdrl_ros.crypto.keys.keystore import (
    KEY_FILE,
    load_root_public,
    PASSPHRASE_VARIABLE,
    ROOT_FILE,
    ROSTER_FILE,
)
from fdrl_ros.crypto.keys.roster import CLOCK_SKEW, Roster
from fdrl_ros.crypto.keys.rotation import HE_NAME, private_keys
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.learner.records.collection import CollectionSettings, HospitalSimulator
from fdrl_ros.runtime.durable import write_secret
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.task import SurgeryTask
import pytest
from support.small_run import TINY_PLAN
import yaml

pytestmark = pytest.mark.usefixtures('quick_scrypt')
TINY = TINY_PLAN | {
    'federation': {'noise': 'seeded', 'hospitals': 4},
    'rounds': {'rounds': 1},
}


def fdrl(*words, typed=None):
    return CliRunner().invoke(main, [str(each) for each in words], input=typed)


def done(*words, typed=None):
    result = fdrl(*words, typed=typed)
    assert result.exit_code == 0, result.output + result.stderr
    return ' '.join(result.output.split())


def refused(*words):
    result = fdrl(*words)
    assert (result.exit_code, result.stderr.count('\n')) == (1, 1), result.output + result.stderr
    return result.stderr


@pytest.fixture
def passphrase(tmp_path):
    write_secret(tmp_path / 'passphrase', b'correct horse\n')
    return tmp_path / 'passphrase'


@pytest.fixture
def keys(tmp_path):
    """Return the keys of four hospitals, in clear."""
    words = [
        word for each in range(1, 5) for word in ('--hospital', f'hospital_{each}={100 * each}')
    ]
    done('keys', 'init', tmp_path / 'keys', '--threshold', 3, '--valid-days', 30, *words)
    return tmp_path / 'keys'


def is_sealed(path):
    return label(path.read_bytes(), path).sealed


def test_show_tells_who_takes_part_and_asks_for_no_secret(keys, passphrase):
    done('keys', 'passphrase', keys, '--new-passphrase-file', passphrase)
    shown = done('keys', 'show', keys)
    assert 'federation federation, roster 1: 3 of 4 hospitals must agree' in shown
    assert ', 1000 patients (may be shared), ' in shown
    assert 'UTC on until ' in shown and 'roster sha256 ' in shown
    assert 'hospital_2 200 patients ' in shown and shown.count('UTC, encrypted') == 8


def test_show_finds_keys_below_a_federation_and_a_run(keys, tmp_path):
    (tmp_path / 'run' / 'federation').mkdir(parents=True)
    keys.rename(tmp_path / 'run' / 'federation' / 'keys')
    for each in ('run', 'run/federation', 'run/federation/keys'):
        assert 'roster 1' in done('keys', 'show', tmp_path / each)
    assert 'nothing is not there' in refused('keys', 'show', tmp_path / 'nothing')


def test_a_key_is_rotated_and_the_old_one_listed(keys):
    old = done('keys', 'show', keys).split('hospital_2 200 patients ')[1].split()[0]
    words = done('keys', 'rotate', keys, 'hospital_2')
    assert 'hospital_2 has a new key' in words and 'roster 2' in words and 'start them' in words
    shown = done('keys', 'show', keys)
    assert f'hospital_2 revoked by 2 {old}' in shown
    assert 'not in roster' in refused('keys', 'rotate', keys, 'hospital_9')
    assert 'cannot be rotated' in refused('keys', 'rotate', keys, 'root')
    assert 'starts for the first time' in refused('keys', 'rotate', keys, '--he')
    assert fdrl('keys', 'rotate', keys).exit_code == 2
    assert fdrl('keys', 'rotate', keys, 'hospital_1', '--he').exit_code == 2


def test_hospitals_are_revoked_and_admitted_within_the_threshold(keys):
    assert 'roster 2: 3 of 3' in done('keys', 'revoke', keys, 'hospital_2')
    assert '2 hospitals are left, and 3 must agree' in refused(
        'keys', 'revoke', keys, 'hospital_3'
    )
    assert 'roster 3: 3 of 4' in done('keys', 'admit', keys, 'hospital_2=50')
    assert 'roster 4: 4 of 5' in done('keys', 'admit', keys, 'hospital_5=50')
    assert 'roster 5: 3 of 4' in done('keys', 'revoke', keys, 'hospital_5', '--threshold', 3)
    assert 'in the federation already' in refused('keys', 'admit', keys, 'hospital_1=5')
    assert 'NAME=PATIENTS' in refused('keys', 'admit', keys, 'hospital_6')
    assert 'at least 1 record' in refused('keys', 'admit', keys, 'hospital_6=0')


def test_roster_is_renewed_with_and_without_an_end(keys):
    assert 'without a limit' in done('keys', 'renew', keys)
    assert 'UTC on until' in done('keys', 'renew', keys, '--valid-days', 5)
    roster = json.loads((keys / 'roster.json').read_text())['roster']
    assert roster['expires'] - roster['not_before'] == 5 * 86400
    assert abs(roster['not_before'] - time.time()) < 100 and roster['serial'] == 3


def test_key_made_by_a_hospital_itself_is_admitted_by_its_public_half(keys, tmp_path):
    words = done('keys', 'make', tmp_path / 'own', 'hospital_5').split()
    path = tmp_path / 'own' / 'hospital_5' / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    public, fingerprint = words[1], words[3]
    admitted = done('keys', 'admit', keys, f'hospital_5=50:{public}')
    assert fingerprint in admitted and not (keys / 'hospital_5').exists()
    assert 'not overwritten' in refused('keys', 'make', tmp_path / 'own', 'hospital_5')
    for wrong in ('xyz', 'abcd', ''):
        assert 'in hexadecimal' in refused('keys', 'admit', keys, f'hospital_6=50:{wrong}')
    assert 'same public key' in refused('keys', 'admit', keys, f'hospital_6=50:{public}')


def test_a_federation_is_made_of_hospitals_that_keep_their_keys(tmp_path):
    publics = {}
    for name in ('north', 'south', 'west'):
        publics[name] = done('keys', 'make', tmp_path / name, name).split()[1]
    words = [w for name in publics for w in ('--hospital', f'{name}=20:{publics[name]}')]
    made = done('keys', 'init', tmp_path / 'keys', *words, '--hospital', 'east=30')
    assert 'made the keys of 4 parties and the root' in made
    assert not [name for name in publics if (tmp_path / 'keys' / name).exists()]
    for name in publics:  # as carried to its host
        for file in ('root.pub', 'roster.json'):
            shutil.copy(tmp_path / 'keys' / file, tmp_path / name / file)
        (tmp_path / 'host' / name).mkdir(parents=True)
        (tmp_path / name).rename(tmp_path / 'host' / name / 'keys')
        layout = Layout(tmp_path / 'host' / name)
        layout.party(name).mkdir()
        identity, roster = layout.credentials(name)
        assert identity.public.hex() == publics[name] and roster.member(name).size == 20


def warned(*words):
    result = fdrl(*words)
    assert result.exit_code == 0, result.output
    return [line for line in result.stderr.splitlines() if line.startswith('fdrl: warning: ')]


def test_show_warns_of_a_roster_that_parties_would_refuse(keys, tmp_path, monkeypatch, passphrase):
    (tmp_path / 'plan.yaml').write_text('')
    old = (keys / 'roster.json').read_bytes()
    done('keys', 'passphrase', keys, '--new-passphrase-file', passphrase)
    told = ('--passphrase-file', passphrase)
    assert not warned('keys', 'show', keys)
    done('keys', 'renew', keys, '--valid-days', 5, *told)
    home = tmp_path / 'hospital_1'
    home.mkdir()
    Layout(tmp_path).trusted_roster('hospital_1')
    assert not warned('keys', 'show', keys)
    (keys / 'roster.json').write_bytes(old)
    first, second = warned('keys', 'show', keys)
    assert 'hospital_1 refuses it: roster 1 of federation is older than roster 2' in first
    assert 'root refuses it' in second
    shown = json.loads(done('keys', 'show', keys, '--json'))
    assert len(shown['problems']) == 2 and shown['serial'] == 1
    now = time.time()
    monkeypatch.setattr(time, 'time', lambda: now + 40 * 86400)
    assert 'check the clock' in warned('keys', 'show', keys)[0]
    monkeypatch.setattr(time, 'time', lambda: now - 40 * 86400)
    assert 'check the clock' in warned('keys', 'show', keys)[0]


def test_show_prints_json_without_secrets(keys):
    shown = json.loads(fdrl('keys', 'show', keys, '--json').stdout)
    assert shown['threshold'] == 3 and shown['drop_outs_tolerated'] == 1
    assert [each['name'] for each in shown['members']][:4] == [
        f'hospital_{i}' for i in range(1, 5)
    ]
    assert all(not each['key']['encrypted'] for each in shown['members'])
    assert shown['homomorphic_encryption'] is None and shown['problems'] == []
    assert shown['root']['fingerprint'] in done('keys', 'show', keys)


def test_it_warns_of_keys_in_clear_and_of_a_threshold_that_nobody_may_miss(keys, passphrase):
    (clear,) = warned('keys', 'show', keys)
    assert 'are in clear (8 of 8)' in clear and '`fdrl keys passphrase`' in clear
    lost, _ = warned('keys', 'revoke', keys, 'hospital_2')
    assert 'no drop-out is tolerated: a round needs all 3 hospitals' in lost
    done('keys', 'passphrase', keys, '--new-passphrase-file', passphrase)
    (lost,) = warned('keys', 'show', keys)
    assert 'no drop-out' in lost
    assert not warned('keys', 'admit', keys, 'hospital_2=5', '--passphrase-file', passphrase)


def test_passphrase_is_told_by_a_file_and_never_printed(keys, passphrase, tmp_path, monkeypatch):
    changed = done('keys', 'passphrase', keys, '--new-passphrase-file', passphrase)
    assert changed.count(KEY_FILE) == 8 and 'horse' not in changed
    assert all(is_sealed(keys / name) for name in private_keys(keys))
    for words in (
        ('rotate', keys, 'hospital_1'),
        ('renew', keys),
        ('passphrase', keys, '--clear'),
    ):
        assert 'is encrypted: put the passphrase' in refused('keys', *words)
    write_secret(tmp_path / 'wrong', b'battery staple')
    wrong = refused('keys', 'renew', keys, '--passphrase-file', tmp_path / 'wrong')
    assert 'is not the one' in wrong and 'staple' not in wrong
    done('keys', 'rotate', keys, 'hospital_1', '--passphrase-file', passphrase)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, str(passphrase))
    done('keys', 'admit', keys, 'hospital_5=50')
    assert all(is_sealed(keys / f'hospital_{each}' / KEY_FILE) for each in (1, 5))
    newer = tmp_path / 'newer'
    write_secret(newer, os.urandom(32))
    done('keys', 'passphrase', keys, '--new-passphrase-file', newer)
    assert 'is not the one' in refused('keys', 'renew', keys)
    done('keys', 'passphrase', keys, '--clear', '--passphrase-file', newer)
    assert not any(is_sealed(keys / name) for name in private_keys(keys))
    assert 'not encrypted, but a passphrase was given' in refused('keys', 'renew', keys)
    assert (
        fdrl('keys', 'passphrase', keys, '--clear', '--new-passphrase-file', newer).exit_code == 2
    )


def test_passphrase_is_asked_for_where_somebody_can_answer(keys, monkeypatch):
    done('keys', 'passphrase', keys, typed='correct horse\ncorrect horse\n')

    class Terminal:
        """Where somebody types."""

        def isatty(self):
            return True

    asked = []

    def prompt(what, **how):
        asked.append((what, how['hide_input']))
        return 'correct horse'

    monkeypatch.setattr(sys, 'stdin', Terminal())
    monkeypatch.setattr(click, 'prompt', prompt)
    main(['keys', 'renew', str(keys)], standalone_mode=False)
    assert asked == [('Passphrase', True)]


def test_federation_is_made_with_encrypted_keys(tmp_path, passphrase):
    words = ['--hospital', 'a=5', '--hospital', 'b=5', '--hospital', 'c=5']
    made = done('keys', 'init', tmp_path / 'k', *words, '--passphrase-file', passphrase)
    assert ', encrypted federation' in made and made.count('UTC, encrypted') == 7
    assert all(is_sealed(tmp_path / 'k' / name) for name in private_keys(tmp_path / 'k'))
    done('keys', 'init', tmp_path / 'asked', *words, '--encrypt', typed='correct horse\n' * 2)
    done('keys', 'renew', tmp_path / 'asked', '--passphrase-file', passphrase)
    assert 'never overwritten' in refused('keys', 'init', tmp_path / 'k', *words)
    short = fdrl('keys', 'init', tmp_path / 's', *words, '--encrypt', typed='short\nshort\n')
    assert short.exit_code == 1


@pytest.fixture(scope='module')
def plan_file(tmp_path_factory):
    path = tmp_path_factory.mktemp('plan') / 'tiny.yaml'
    path.write_text(yaml.safe_dump(TINY))
    return path


def trained(run, *words):
    """Train, and return the number of rounds done and who contributed to the last."""
    result = fdrl('train', '--directory', run, '--no-evaluate', *words)
    assert result.exit_code == 0, result.output + result.stderr
    notes = json.loads((run / 'rounds.json').read_text())
    return len(notes), tuple(notes[-1]['contributors'])


def test_a_run_goes_on_through_every_change_of_its_keys(
    tmp_path, plan_file, passphrase, monkeypatch
):
    run, names = tmp_path / 'run', tuple(f'hospital_{each}' for each in range(1, 5))
    monkeypatch.setenv(PASSPHRASE_VARIABLE, str(passphrase))
    assert trained(run, '--plan', plan_file) == (1, names)
    layout = Layout(RunDirectory.open(run).layout.directory)
    assert is_sealed(layout.he_key) and all(
        is_sealed(layout.keys / name) for name in private_keys(layout.keys)
    )
    shown = done('keys', 'show', run)
    assert '4 hospitals sha256' in shown and 'encrypted, for 1 rounds so far' in shown

    for each in ('hospital_2', 'aggregator', 'key_authority'):
        done('keys', 'rotate', run, each)
    first = layout.he_key.read_bytes()
    done('keys', 'rotate', run, '--he')
    assert layout.he_key.read_bytes() != first
    assert 'encrypted, for 0 rounds so far' in done('keys', 'show', run)
    assert trained(run, '--rounds', 2) == (2, names)

    done('keys', 'revoke', run, 'hospital_3')
    left = ('hospital_1', 'hospital_2', 'hospital_4')
    assert trained(run, '--rounds', 3) == (3, left)
    assert label((layout.keys / HE_NAME).read_bytes(), 'x').about['scheme'].endswith('3 hospitals')

    done('keys', 'admit', run, 'hospital_9=5')
    cohort = Cohort(0, 1, 0.5, 99, procedures=('palpation',))
    world, settings = WorldSettings(mode='kinematic', horizon=6), CollectionSettings(patients=5)
    records = HospitalSimulator(SurgeryTask(), world, settings).collect(cohort)
    layout.party('hospital_9').mkdir(mode=0o700)
    records.save(layout.records('hospital_9'))
    assert trained(run, '--rounds', 4) == (4, (*left, 'hospital_9'))

    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    again = fdrl('train', '--directory', run, '--no-evaluate', '--rounds', 5)
    assert again.exit_code == 1 and 'is encrypted: put the passphrase' in again.stderr
    done('keys', 'passphrase', run, '--clear', '--passphrase-file', passphrase)
    assert trained(run, '--rounds', 5)[0] == 5


PAGE = (Path(__file__).resolve().parents[3] / 'docs' / 'keys.md').read_text('utf-8')


def blocks(language):
    """Return the code of a language on the page, block by block."""
    return [each.split('```')[0] for each in PAGE.split(f'```{language}\n')[1:]]


def test_page_on_keys_tells_commands_that_work(tmp_path, monkeypatch, passphrase):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, str(passphrase))
    write_secret(tmp_path / 'new', b'battery staple')
    lines = [line for block in blocks('bash') for line in block.splitlines()]
    told = [shlex.split(line, comments=True) for line in lines if line.startswith('fdrl ')]
    assert [words[2] for words in told] == [
        *('init', 'show', 'rotate', 'rotate', 'revoke', 'admit', 'make', 'renew', 'passphrase')
    ]
    for words in told:
        done(*words[1:])
    monkeypatch.setenv(PASSPHRASE_VARIABLE, str(tmp_path / 'new'))
    assert 'roster 7' in done('keys', 'rotate', 'keys', 'north')


def test_page_on_keys_tells_a_script_that_works(tmp_path, monkeypatch, passphrase, capsys):
    monkeypatch.chdir(tmp_path)
    (script,) = blocks('python')
    exec(compile(script, 'keys.md', 'exec'), {})
    said = capsys.readouterr().out.split()
    assert said[0] == '2' and said[-1] == "['south']"


def test_page_on_keys_tells_the_numbers_of_the_code():
    words = ' '.join(PAGE.split())
    assert f'N = 2^{key_file.COST}, r = 8, p = 1' in words
    mebibytes = [128 * 8 * 2**cost // 2**20 for cost in (key_file.COST, key_file.COSTS[-1])]
    assert f'takes {mebibytes[0]} MiB' in words and f'more than {mebibytes[1]} MiB' in words
    sizes = key_file.PASSPHRASE_BYTES
    assert f'key file of {sizes[0]} to {sizes[-1]} bytes' in words
    assert f'{CLOCK_SKEW // 60} minutes off' in words


def test_buckets_are_told_and_those_of_two_refused(tmp_path):
    hospitals = [f'--hospital=hospital_{number}=9' for number in range(1, 8)]
    made = done('keys', 'init', tmp_path / 'keys', *hospitals, '--buckets', 2)
    words = '2 buckets: the key authority sees the average of each, of about 3.5 hospitals, and '
    assert words in made
    other = refused('keys', 'init', tmp_path / 'other', *hospitals, '--buckets', 3)
    assert '3 buckets: expected 0, or 2, since 7 hospitals' in other
    assert not (tmp_path / 'other').exists()


def roster_in(keys):
    return Roster.load(keys / ROSTER_FILE, load_root_public(keys / ROOT_FILE))


def test_no_bucket_goes_with_a_hospital_unless_somebody_says_so(tmp_path):
    keys = tmp_path / 'keys'
    hospitals = [f'--hospital=hospital_{number}=9' for number in range(1, 7)]
    done('keys', 'init', keys, *hospitals, '--buckets', 2, '--threshold', 4)
    before = roster_in(keys)
    why = refused('keys', 'revoke', keys, 'hospital_6')
    assert '5 hospitals are left, too few for 2 buckets of 3' in why
    assert roster_in(keys) == before
    assert 'buckets' not in done('keys', 'revoke', keys, 'hospital_6', '--buckets', 0)
    one = roster_in(keys)
    assert (one.buckets, one.ring_seed) == (0, '')
    assert 'buckets' not in done('keys', 'admit', keys, 'hospital_7=9')
    assert '2 buckets' in done('keys', 'admit', keys, 'hospital_8=9', '--buckets', 2)
    two = roster_in(keys)
    assert two.buckets == 2 and two.ring_seed not in ('', before.ring_seed)


def test_a_hospital_that_is_named_twice_is_refused(tmp_path):
    words = [word for name in 'aabc' for word in ('--hospital', f'{name}=10')]
    assert 'each name once' in refused('keys', 'init', tmp_path / 'keys', *words)
    assert not (tmp_path / 'keys').exists()
