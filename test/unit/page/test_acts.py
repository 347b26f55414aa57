# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Acts: who may do what, what a request must say, and a journal that is written before."""

import fcntl
import json
from pathlib import Path
import stat

from fdrl_ros.errors import JournalDamagedError, StoreError, SupervisionError
from fdrl_ros.page import acts as module
from fdrl_ros.page.acts import (
    Act,
    ActJournal,
    Acts,
    CALMING,
    JOURNAL,
    MOST_RECENT,
    ORDERS,
    parse_act,
    ROOM,
    SIGNED,
    Status,
    Unanswered,
    verify_acts,
    WINDOW,
)
from fdrl_ros.page.sessions import Person, Role, Session
import pytest

ROBOTS = ('robot_1',)


class Desk:
    """Acts with a journal in a folder, and a hand that does what it is told."""

    def __init__(self, folder: Path, unable: dict[str, str] | None = None) -> None:
        self.now = 0.0
        self.path = folder / JOURNAL
        self.journal = ActJournal(self.path, lambda: 1_000_000.0 + self.now)
        self.done: list[Act] = []
        self.told: list[str] = []
        self.error: Exception | None = None
        self.acts = Acts(self.journal, self.do, self.told.append, lambda: self.now, unable or {})

    def do(self, act: Act, session: Session) -> str:
        assert self.lines()[-1]['result'] == 'asked', 'it is written before it is sent'
        self.done.append(act)
        if self.error is not None:
            raise self.error
        return 'so it is'

    def lines(self) -> list[dict]:
        return [json.loads(each) for each in self.path.read_text().splitlines()]

    def ask(self, role: Role, body: object, name: str = 'Ada') -> tuple[Status, str]:
        answer = self.acts.perform(Session(Person(name, role), '', 0.0), body, ROBOTS)
        return answer.status, answer.message


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


TAKE_OVER = {'act': 'take_over', 'robot': 'robot_1'}


def test_a_surgeon_s_act_is_written_sent_and_told_everybody(desk):
    assert desk.ask(Role.SURGEON, TAKE_OVER) == (200, 'so it is')
    assert desk.done == [Act('take_over', 'robot_1')]
    assert desk.told == ['Ada (surgeon): take over (robot_1)']
    asked, done = desk.lines()
    assert (asked['name'], asked['role'], asked['act']) == ('Ada', 'surgeon', 'take_over')
    assert (asked['result'], done['result'], done['message']) == ('asked', 'done', 'so it is')
    assert asked['time'] == '1970-01-12T13:46:40.000+00:00'
    assert stat.S_IMODE(desk.path.stat().st_mode) == 0o600


@pytest.mark.parametrize('role', Role)
def test_roles_may_do_what_they_may(desk, role):
    allowed = desk.acts.allowed(role)
    assert ('take_over' in allowed) == (role is not Role.VIEWER)
    assert ('roll_back' in allowed) == (role is Role.OPERATOR)
    for body in (TAKE_OVER, {'act': 'roll_back', 'to_round': 3}):
        status, _ = desk.ask(role, body)
        assert (status == Status.DONE) == (body['act'] in allowed)
        assert desk.lines()[-1]['result'] == ('done' if body['act'] in allowed else 'forbidden')


def test_what_no_key_signs_is_not_offered(tmp_path):
    desk = Desk(tmp_path, dict.fromkeys(SIGNED, 'no key of an operator') | {'home': 'no robot'})
    assert 'hand_back' not in desk.acts.allowed(Role.OPERATOR)
    status, message = desk.ask(Role.OPERATOR, {'act': 'pause'})
    assert status == Status.FORBIDDEN and 'no key of an operator' in message
    status, message = desk.ask(Role.OPERATOR, {'act': 'home', 'robot': 'robot_1'})
    assert status == Status.FORBIDDEN and message == 'home: no robot'
    assert not desk.done


@pytest.mark.parametrize(
    ('body', 'words'),
    [
        ([], 'expected an object'),
        ({'act': 'explode'}, "no act 'explode'"),
        ({'act': ['take_over']}, 'no act'),
        ({'act': 'take_over'}, 'needs robot'),
        ({'act': 'take_over', 'robot': 'robot_9'}, "no robot 'robot_9'"),
        ({'act': 'take_over', 'robot': 7}, 'expected a text'),
        ({'act': 'lock', 'robot': 'robot_1'}, 'needs policy'),
        ({'act': 'take_over', 'robot': 'robot_1', 'policy': 'global'}, 'takes no policy'),
        ({'act': 'veto', 'robot': 'robot_1', 'policy': 'x' * 300}, 'at most 200'),
        ({'act': 'roll_back'}, 'needs to_round'),
        ({'act': 'roll_back', 'to_round': -1}, 'number of a round'),
        ({'act': 'roll_back', 'to_round': True}, 'number of a round'),
        ({'act': 'admit'}, 'needs hospital'),
    ],
)
def test_malformed_requests_are_refused_and_written_down(desk, body, words):
    status, message = desk.ask(Role.OPERATOR, body)
    assert status == Status.MALFORMED and words in message
    assert [each['result'] for each in desk.lines()] == ['malformed'] and not desk.done


ABOUT = {
    **dict.fromkeys(('lock', 'veto', 'allow', 'unpin'), {'policy': 'global'}),
    'pin': {'policy': 'global', 'version': '3'},
    **dict.fromkeys(('admit', 'withdraw', 'forgive'), {'hospital': 'hospital_1'}),
    'roll_back': {'to_round': 0},
}


@pytest.mark.parametrize('name', [*ROOM, *ORDERS])
def test_every_act_can_be_asked_for(name):
    about = ABOUT.get(name, {}) | ({'robot': 'robot_1'} if name in ROOM else {})
    assert parse_act({'act': name, **about}, ROBOTS) == Act(name, **about)


@pytest.mark.parametrize(
    ('error', 'status', 'result'),
    [
        (SupervisionError('no candidate'), Status.REFUSED, 'refused'),
        (Unanswered('nobody answered'), Status.UNANSWERED, 'unanswered'),
    ],
)
def test_refusals_are_told_and_written(desk, error, status, result):
    desk.error = error
    assert desk.ask(Role.SURGEON, TAKE_OVER) == (status, str(error))
    assert desk.lines()[-1]['result'] == result


HOME = {'act': 'home', 'robot': 'robot_1'}


def test_a_flood_of_acts_is_stopped_but_for_what_stops_something(desk):
    session = Session(Person('Ada', Role.SURGEON), '', 0.0)
    for number in range(MOST_RECENT):
        body, status = ((HOME, 200), ({}, Status.MALFORMED))[number % 2]
        assert desk.acts.perform(session, body, ROBOTS).status == status
    for body in (HOME, {}, {'act': 'withdraw', 'hospital': 'hospital_1'}):
        assert desk.acts.perform(session, body, ROBOTS).status == Status.TOO_MANY
    for _ in range(2 * MOST_RECENT):
        assert desk.acts.perform(session, TAKE_OVER, ROBOTS).status == 200
    desk.now += WINDOW
    assert desk.acts.perform(session, HOME, ROBOTS).status == 200


def test_who_may_not_act_writes_no_flood(desk):
    session = Session(Person('Bob', Role.VIEWER), '', 0.0)
    for _ in range(MOST_RECENT):
        assert desk.acts.perform(session, TAKE_OVER, ROBOTS).status == Status.FORBIDDEN
    assert desk.acts.perform(session, TAKE_OVER, ROBOTS).status == Status.TOO_MANY
    assert len(desk.lines()) == MOST_RECENT


def test_what_stops_something_waits_for_nobody_who_holds_the_journal(desk):
    desk.ask(Role.SURGEON, HOME)
    with open(desk.path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        desk.acts = Acts(desk.journal, lambda *_: 'so it is', desk.told.append, lambda: 0.0, {})
        status, message = desk.ask(Role.SURGEON, TAKE_OVER)
    assert status == 200 and 'could not be written' in message
    assert verify_acts(desk.path) == 2
    with desk.journal._lock:
        assert desk.ask(Role.SURGEON, TAKE_OVER)[0] == 200


def test_every_act_that_stops_something_is_one():
    assert set(CALMING) < {*ROOM, *ORDERS}


class FullDisk:
    """A file that takes half of what is written."""

    def __init__(self, file) -> None:
        self.file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)

    def write(self, data: bytes) -> int:
        return self.file.write(data[: len(data) // 2])


def test_a_full_disk_keeps_nobody_from_stopping_the_robot(desk, monkeypatch):
    desk.ask(Role.SURGEON, TAKE_OVER)
    before = desk.path.read_bytes()
    desk.acts = Acts(desk.journal, lambda *_: 'so it is', desk.told.append, lambda: 0.0, {})
    monkeypatch.setattr(desk.journal, '_file', FullDisk(desk.journal._file))
    status, message = desk.ask(Role.SURGEON, TAKE_OVER)
    assert status == 200 and 'could not be written' in message
    status, message = desk.ask(Role.SURGEON, {'act': 'enable', 'robot': 'robot_1'})
    assert status == Status.REFUSED and 'cannot be written' in message
    assert desk.path.read_bytes() == before
    monkeypatch.undo()
    desk.ask(Role.VIEWER, TAKE_OVER)
    assert verify_acts(desk.path) == 3


def test_an_act_is_on_the_disk_before_it_is_sent(desk, monkeypatch):
    synced = []
    monkeypatch.setattr(module.os, 'fdatasync', lambda descriptor: synced.append(desk.lines()))
    desk.ask(Role.SURGEON, HOME)
    assert [lines[-1]['result'] for lines in synced] == ['asked']
    desk.ask(Role.SURGEON, TAKE_OVER)
    assert len(synced) == 1, 'taking over waits for no disk'


def test_changed_and_missing_lines_show(desk):
    for _ in range(3):
        desk.ask(Role.SURGEON, TAKE_OVER)
    whole = desk.path.read_bytes()
    assert verify_acts(desk.path) == 6
    lines = whole.splitlines(keepends=True)
    for changed, number in (
        (whole.replace(b'Ada', b'Bob', 1), 2),
        (b''.join(lines[:2] + lines[3:]), 3),
        (b'no JSON\n' + whole, 1),
    ):
        desk.path.write_bytes(changed)
        with pytest.raises(JournalDamagedError, match=f'line {number} '):
            verify_acts(desk.path)
        with pytest.raises(JournalDamagedError):
            ActJournal(desk.path, lambda: 0.0)


def test_half_a_line_of_a_kill_is_cut_off(desk):
    desk.ask(Role.SURGEON, TAKE_OVER)
    whole = desk.path.read_bytes()
    desk.path.write_bytes(whole + b'{"time": "20')
    with ActJournal(desk.path, lambda: 0.0) as journal:
        assert desk.path.read_bytes() == whole
        journal.append(name='Bob')
    assert verify_acts(desk.path) == 3


def test_two_pages_write_one_journal(tmp_path):
    first, second = Desk(tmp_path), Desk(tmp_path)
    for number in range(4):
        (first, second)[number % 2].ask(Role.SURGEON, TAKE_OVER, f'person {number}')
    assert verify_acts(first.path) == 8


def test_a_journal_that_cannot_be_written_is_one_clear_line(tmp_path):
    with pytest.raises(StoreError, match='cannot write'):
        ActJournal(tmp_path / 'missing' / JOURNAL, lambda: 0.0)
    (tmp_path / JOURNAL).symlink_to(tmp_path / 'elsewhere')
    with pytest.raises(StoreError, match='cannot write'):
        ActJournal(tmp_path / JOURNAL, lambda: 0.0)
