# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl journal` shows who contributed to what, and finds whatever was done to the journals."""

from contextlib import closing
from dataclasses import replace
import json
from pathlib import Path
import shutil

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity
from fdrl_ros.crypto.keys.roster import ROSTER_MEMORY
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.federation.journal.journal import FILE, head_noted, Journal
from fdrl_ros.federation.journal.reader import FIELDS
from fdrl_ros.federation.key_authority.state import Released
from fdrl_ros.federation.protocol.encoding import decode, encode
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.page.acts import ActJournal, JOURNAL
import pytest
from support.journals import digest, Federation, honest, HOSPITALS, policy, Told

NAME = 'hospital_2'


def fdrl(*words):
    return CliRunner().invoke(main, ['journal', *(str(each) for each in words)])


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    run = tmp_path_factory.mktemp('runs') / 'one'
    run.mkdir()
    federation = Federation(run / 'federation')
    told = honest(4)
    told.find('key_authority', 'release', 3)['reason'] = '[red]worse[/red]\x1b[2J'
    federation.write(told, stores=True)
    return run


@pytest.fixture
def run(written, tmp_path):
    shutil.copytree(written, tmp_path / 'run')
    return tmp_path / 'run'


@pytest.fixture
def journal(run):
    return run / 'federation' / NAME / FILE


@pytest.mark.parametrize('options', [(), ('--quick',)])
def test_verify_says_that_honest_journals_are_whole_and_agree(run, options):
    for path in (run, run / 'federation'):
        result = fdrl('verify', path, *options)
        assert result.exit_code == 0, result.output
        lines = result.stdout.splitlines()
        assert len(lines) == 7 and not result.stderr
        for name, line in zip((*HOSPITALS, 'aggregator', 'key_authority'), lines, strict=False):
            head = head_noted(Layout(run / 'federation').state(name))
            assert line.startswith(f'{name}: {head.entries} entries, whole and signed by ')
            policies = ' and the policies in it' if name == 'key_authority' else ''
            ledger = '; not here: its privacy ledger' if name in HOSPITALS else ''
            assert f', head {str(head)[: len(f"{head.entries}:") + 24]}; ' in line
            assert line.endswith(f'compared with its state file{policies}{ledger}')
        assert lines[-1].startswith('rounds 1 to 4 released; 11 updates compared with what')


def test_before_the_first_release_nothing_is_wrong_and_a_blame_is_told(tmp_path):
    run = tmp_path / 'run'
    run.mkdir()
    told = Told()
    for name in HOSPITALS:
        told.add(name, 'policy', 0, policy=policy(0), included=False)
        told.add(name, 'blame', 1, 1, hospital='hospital_2', fault='[red]lied\x1b[2J', proof=b'\1')
    Federation(run / 'federation').write(told, stores=True)
    verified = fdrl('verify', run, '--json')
    assert verified.exit_code == 0, verified.output
    (blamed,) = json.loads(verified.stdout)['blamed']
    assert blamed['hospital'] == 'hospital_2' and blamed['noted_by'] == list(HOSPITALS)
    for shown in (fdrl('verify', run), fdrl('show', run)):
        words = ' '.join(shown.stdout.split())
        assert 'blamed' in words and '[red]lied?[2J' in words and '\x1b' not in words


def test_verify_of_one_party_checks_it_alone(run, journal):
    for path in (journal, journal.parent):
        result = fdrl('verify', path)
        assert result.exit_code == 0, result.output
        first, second = result.stdout.splitlines()
        assert first.startswith(f'{NAME}: ')
        assert second.startswith('no journal here of aggregator, hospital_1')


def test_verify_prints_json(run, journal):
    result = fdrl('verify', run, '--json')
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found['problems'] == found['remarks'] == []
    assert (found['first_round'], found['last_round'], found['updates_compared']) == (1, 4, 11)
    party = found['parties'][NAME]
    assert party['head'] == str(head_noted(journal.with_name('state.sqlite')))
    assert party['entries'] == int(party['head'].partition(':')[0])
    assert len(party['keys']) == 1 and not party['cut_short']
    assert party['head'].startswith(party['short_head'])
    assert party['compared'] == ['its state file'] and party['missing'] == ['its privacy ledger']
    journal.write_bytes(journal.read_bytes()[1:])
    result = fdrl('verify', run, '--json')
    assert result.exit_code == 1
    (problem,) = json.loads(result.stdout)['problems']
    assert 'entry 1 is damaged' in problem and result.stderr == f'fdrl: {problem}\n'


def test_verify_finds_a_changed_cut_or_missing_journal(run, journal):
    content = journal.read_bytes()
    lines = content.splitlines(keepends=True)
    for changed, words in (
        (content.replace(b'"round":3', b'"round":2', 1), 'is damaged'),
        (b''.join(lines[:-1]), 'was cut: it ends with entry'),
        (b'', 'was cut: it ends with entry 0'),
    ):
        journal.write_bytes(changed)
        result = fdrl('verify', run)
        assert result.exit_code == 1 and words in result.stderr, result.output
        assert str(journal) in result.stderr and 'Traceback' not in result.output
    journal.unlink()
    result = fdrl('verify', run)
    assert result.exit_code == 1 and f'journal {journal}: No such file' in result.stderr


def test_without_a_state_file_a_cut_shows_by_a_head_that_somebody_noted(run, journal):
    head = head_noted(journal.with_name('state.sqlite'))
    journal.with_name('state.sqlite').unlink()
    journal.write_bytes(b''.join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    # It was copied here alone, as far as anybody can tell.
    result = fdrl('verify', run)
    assert result.exit_code == 0
    assert 'compared with nothing else; not here: its state file' in result.stdout
    for length in (64, 24, 40):
        noted = f'{head.entries}:{head.digest.hex()[:length]}'
        result = fdrl('verify', run, '--seen', f'{NAME}={noted}')
        assert result.exit_code == 1 and f'and somebody saw {noted}' in result.stderr
    for wrong in ('12:34', f'12:{"f" * 23}', f'12:{"g" * 24}', f'12:{"f" * 25}'):
        result = fdrl('verify', run, '--seen', f'{NAME}={wrong}')
        assert result.exit_code == 2 and 'at least 24 hex digits' in result.stderr
    result = fdrl('verify', run, '--seen', f'nobody={head}')
    assert result.exit_code == 1 and 'nobody' in result.stderr


def test_a_noted_head_finds_a_cut_together_with_the_state_file(run, journal):
    told = json.loads(fdrl('verify', run, '--json').stdout)['parties'][NAME]
    state, content = journal.with_name('state.sqlite'), journal.read_bytes()
    state.unlink()
    journal.write_bytes(b''.join(content.splitlines(keepends=True)[:-2]))
    identity = load_identity(run / 'federation' / 'keys' / NAME / KEY_FILE, NAME)
    store = Store(state)
    Journal(journal, identity, 'federation', store).close()  # as if it had never been longer
    store.close()
    assert fdrl('verify', journal).exit_code == 0
    result = fdrl('verify', run, '--seen', f'{NAME}={told["short_head"]}')
    assert result.exit_code == 1 and f'somebody saw {told["short_head"]}' in result.stderr
    journal.write_bytes(content)
    result = fdrl('verify', journal, '--seen', f'{NAME}={told["short_head"]}')
    assert result.exit_code == 1 and 'knows of' in result.stderr
    assert 'and the head that somebody saw' in result.stdout


def test_a_party_that_ran_here_must_have_its_state_and_its_ledger(run, journal):
    (journal.with_name(ROSTER_MEMORY)).write_text('{}')
    result = fdrl('verify', run)
    assert result.exit_code == 1
    assert f'ledger {journal.with_name("ledger.sqlite")} is missing' in result.stderr
    state = journal.with_name('state.sqlite')
    state.unlink()
    result = fdrl('verify', run)
    assert result.exit_code == 1
    assert f'the state file {state} is missing, and {NAME} ran here' in result.stderr
    assert 'not here: its state file and its privacy ledger' in result.stdout
    Store(state).close()
    result = fdrl('verify', run)
    assert result.exit_code == 1 and 'knows of 0 of the 19 entries' in result.stderr


def test_policies_of_the_key_authority_are_those_that_it_released(run):
    state = Layout(run / 'federation').state('key_authority')
    store = Store(state)
    good = store.get('policy 2')
    released = decode(good, Released)
    store.put('policy 2', encode(replace(released, weights=released.weights + 1.0)))
    store.close()
    result = fdrl('verify', run)
    assert result.exit_code == 1
    assert "'policy 2' is not the policy that was released in round 2" in result.stderr
    store = Store(state)
    store.put('policy 2', good)
    store.replace(['policy [34]'], {})
    store.close()
    result = fdrl('verify', run)
    assert result.exit_code == 1 and 'its newest policy is of round 2' in result.stderr
    store = Store(state)
    store.put('policy 2', b'nonsense')
    store.close()
    assert 'its policies cannot be read' in fdrl('verify', run).stderr


def test_a_half_line_is_no_problem_and_is_said(run, journal):
    with journal.open('ab') as file:
        count = journal.read_bytes().count(b'\n') + 1
        file.write(f'{{"number":{count},"prev'.encode())
    result = fdrl('verify', run)
    assert result.exit_code == 0 and f'{NAME}: a half line after its last entry' in result.stdout


def test_a_damaged_state_file_is_told(run, journal):
    journal.with_name('state.sqlite').write_bytes(b'no table')
    result = fdrl('verify', run)
    assert result.exit_code == 1 and 'state.sqlite' in result.stderr
    assert 'so the journal of hospital_2 cannot be compared' in result.stderr
    assert 'compared with nothing else; not here: its privacy ledger; not read, see below: ' in (
        result.stdout
    )
    assert f'{NAME}: ' in result.stdout


def test_show_prints_who_contributed_to_what(run):
    result = fdrl('show', run)
    assert result.exit_code == 0, result.output
    rows = [line.split('│')[1:-1] for line in result.stdout.splitlines() if '│' in line]
    cells = [[cell.strip() for cell in row] for row in rows]
    first = next(row for row in cells if row[0] == '1')
    assert first[3] == policy(1).hex()[:12] and first[4:6] == ['hospital_1', '500']
    assert first[6:8] == [digest('hospital_1', 1, 1).hex()[:12], '2']
    assert first[8] == 'new policy'
    assert [row[4] for row in cells].count('hospital_4') == 2  # it dropped out of round 2
    third = next(row for row in cells if row[0] == '3')
    assert third[3] == policy(2).hex()[:12] and third[8].startswith('older weights')
    assert '[red]worse[/red]?[2J' in result.stdout and '\x1b' not in result.stdout
    assert next(row for row in cells if row[0] == '4')[4] == 'nobody'


def test_show_prints_the_entries_of_a_party_or_round(run, journal):
    result = fdrl('show', run, '--party', NAME)
    assert result.exit_code == 0 and 'signed' in result.stdout
    assert 'survivors hospital_1, hospital_2, hospital_3' in ' '.join(result.stdout.split())
    assert 'Who contributed' not in result.stdout
    assert fdrl('show', journal).stdout == result.stdout
    result = fdrl('show', run, '--round', '2')
    assert 'Who contributed to what' in result.stdout and 'no answer in time' in result.stdout
    assert digest('hospital_1', 1, 1).hex()[:12] not in result.stdout
    result = fdrl('show', run, '--party', NAME, '--last', '2')
    count = journal.read_bytes().count(b'\n')
    assert f'(the last 2 of {count} entries)' in result.stdout
    assert fdrl('show', run, '--round', '77').stdout == 'no such entry\n'


def test_show_and_verify_refuse_what_is_no_federation(run, tmp_path):
    for command in ('show', 'verify'):
        result = fdrl(command, tmp_path / 'nothing')
        assert result.exit_code == 1 and 'nothing is not there: `fdrl run`' in result.stderr
    Federation(tmp_path / 'new')
    for command in ('show', 'verify'):
        result = fdrl(command, tmp_path / 'new')
        assert result.exit_code == 1 and 'its parties have not started yet' in result.stderr
    result = fdrl('show', run, '--party', 'hospital_9')
    assert result.exit_code == 1 and 'expected one of hospital_1, hospital_2' in result.stderr


def test_every_kind_of_entry_is_documented_with_its_fields():
    page = (Path(__file__).parents[3] / 'docs' / 'journal.md').read_text('utf-8')
    page = page.partition('\n## ')[0]
    rows = [line.strip('| ').split(' | ') for line in page.splitlines() if line.startswith('| ')]
    assert {row[0]: tuple(row[2].split(', ')) for row in rows[1:]} == dict(FIELDS)


def test_verify_follows_the_acts_of_people_on_the_page(run):
    path = run / 'federation' / JOURNAL
    with closing(ActJournal(path, lambda: 0.0)) as acts:
        for name in ('take_over', 'lock', 'hand_back'):
            acts.append(name='Ada', act=name)
    assert fdrl('verify', run).exit_code == 0
    path.write_bytes(path.read_bytes().replace(b'take_over', b'unlock'))
    result = fdrl('verify', run)
    assert result.exit_code == 1 and 'line 2 does not follow' in result.output
