# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The surgeon's requests in the queue, with a disk that is as slow as the test wants."""

from collections import deque
from functools import partial
import logging
from pathlib import Path
from types import SimpleNamespace

from fdrl_ros.errors import StoreError
from fdrl_ros.nodes.robot.supervision_queue import SupervisionQueue, SupervisionRequest
from fdrl_ros.selector.candidates.supervision import (
    Command,
    load_supervision,
    save_supervision,
    Supervision,
    SUPERVISION_FILE,
    URGENT,
)
import pytest

KNOWN = ('global', 'hospital_1')
FULL = StoreError('the disk is full')


class Desk:
    """A supervision queue whose writes wait until the test completes them."""

    def __init__(self, directory: Path, before: Supervision) -> None:
        self.file = directory / SUPERVISION_FILE
        save_supervision(self.file, before)
        self.jobs: deque = deque()
        self.answers: dict[str, tuple[bool, str]] = {}
        self.forces: list[Supervision] = []
        node = SimpleNamespace(get_logger=lambda: logging.getLogger('word'))
        self.queue = SupervisionQueue(
            node, self.file, lambda *job: self.jobs.append(job), self._obey
        )

    def _obey(self) -> None:
        self.forces.append(self.queue.supervision)

    def order(self, command: Command, name: str = '') -> None:
        change = partial(Supervision.ordered, command=command, name=name, known=KNOWN)
        urgent = command in URGENT
        self.queue.submit(
            SupervisionRequest(change, command, urgent, partial(self._answered, command))
        )

    def order_all(self, orders) -> None:
        for command, name in orders:
            self.order(command, name)

    def _answered(self, command: str, success: bool, words: str) -> None:
        assert command not in self.answers
        self.answers[command] = success, words

    def write(self) -> None:
        """Have the next write end well."""
        work, done = self.jobs.popleft()
        work()
        done(None)

    def refuse(self) -> None:
        """Have the next write fail."""
        self.jobs.popleft()[1](FULL)

    def on_disk(self) -> Supervision:
        return load_supervision(self.file)


ALLOWED, VETOED = Supervision(), Supervision(vetoed=frozenset({'global'}))
DRIVES = Supervision(surgeon=True)
BACK_AND_OVER = [(Command.HAND_BACK, ''), (Command.TAKE_OVER, '')], DRIVES
ALLOW_AND_VETO = [(Command.ALLOW, 'global'), (Command.VETO, 'global')], VETOED
BOTH = pytest.mark.parametrize(('orders', 'safe'), [BACK_AND_OVER, ALLOW_AND_VETO])


@BOTH
@pytest.mark.parametrize('written', [True, False])
def test_no_earlier_order_undoes_an_urgent_one_while_the_disk_is_slow(
    tmp_path, orders, safe, written
):
    desk = Desk(tmp_path, safe)
    desk.order_all(orders)
    desk.write()
    assert desk.on_disk() == ALLOWED, 'the earlier order was on its way to the disk'
    assert desk.queue.supervision == safe
    assert desk.answers == {orders[0][0]: (True, safe.in_words())}, 'it tells what holds'
    desk.write() if written else desk.refuse()
    assert desk.queue.supervision == safe
    success, words = desk.answers[orders[1][0]]
    assert success is written and not desk.forces and not desk.jobs, 'it was never let go'
    if written:
        assert words == safe.in_words()
    else:
        assert words.startswith(f'{safe.in_words()}; but a restart would undo it')
        desk.queue.close(ended=True)
    assert desk.on_disk() == safe, 'at the latest at the end'


@BOTH
def test_no_earlier_order_undoes_an_urgent_one_if_the_earlier_cannot_be_written(
    tmp_path, orders, safe
):
    desk = Desk(tmp_path, safe)
    desk.order_all(orders)
    desk.refuse()
    assert desk.answers[orders[0][0]] == (False, f'nothing has changed: {FULL}')
    assert desk.answers[orders[1][0]] == (True, safe.in_words()), 'it is what the disk says'
    assert desk.on_disk() == desk.queue.supervision == safe and not desk.forces


@BOTH
def test_order_that_is_undone_before_its_turn_never_reaches_the_disk(tmp_path, orders, safe):
    desk = Desk(tmp_path, safe)
    desk.order(Command.LOCK, 'hospital_1')
    desk.order_all(orders)
    desk.write()
    assert not desk.jobs, 'the disk says all of it already'
    assert (
        desk.on_disk() == desk.queue.supervision == safe.ordered(Command.LOCK, 'hospital_1', KNOWN)
    )
    assert all(success for success, _ in desk.answers.values()) and len(desk.answers) == 3


def test_hand_back_after_a_take_over_counts_once_it_is_on_the_disk(tmp_path):
    desk = Desk(tmp_path, ALLOWED)
    desk.order(Command.TAKE_OVER)
    desk.order(Command.HAND_BACK)
    desk.write()
    assert desk.on_disk() == desk.queue.supervision == DRIVES
    desk.write()
    assert desk.on_disk() == desk.queue.supervision == ALLOWED
    assert desk.forces == [DRIVES, ALLOWED]


@pytest.mark.parametrize(
    ('before', 'order', 'written', 'told'),
    [
        (ALLOWED, Command.TAKE_OVER, False, ['a restart may undo that the surgeon drives']),
        (ALLOWED, Command.TAKE_OVER, True, []),
        (DRIVES, Command.HAND_BACK, False, ['']),
    ],
)
def test_word_that_another_thread_may_still_write_is_told_of_at_the_end(
    tmp_path, caplog, before, order, written, told
):
    desk = Desk(tmp_path, before)
    desk.order(order)
    if written:
        desk.write()
        caplog.clear()
    desk.queue.close(ended=False)
    assert desk.on_disk() == (DRIVES if written else before)
    for record, words in zip(caplog.records, told, strict=True):
        assert record.levelno == logging.ERROR and record.message.endswith(words)


def test_who_waits_at_the_end_is_answered(tmp_path):
    desk = Desk(tmp_path, ALLOWED)
    desk.order(Command.LOCK, 'global')
    desk.order(Command.TAKE_OVER)
    desk.order(Command.UNLOCK)
    desk.jobs.popleft()[0]()  # on the disk, but nobody was told before the end
    desk.queue.close(ended=True)
    refused = False, 'the selector was deactivated: nothing has changed'
    assert desk.answers == {
        Command.LOCK: refused,
        Command.TAKE_OVER: (True, DRIVES.in_words()),
        Command.UNLOCK: refused,
    }
    assert desk.on_disk() == desk.queue.supervision == DRIVES, 'what was refused is not obeyed'


@pytest.mark.parametrize('ended', [True, False])
def test_who_waits_at_the_end_hears_that_the_disk_may_say_something_else(
    tmp_path, monkeypatch, ended
):
    desk = Desk(tmp_path, ALLOWED)
    desk.order(Command.LOCK, 'global')
    desk.order(Command.TAKE_OVER)

    def fail(path, supervision):
        raise FULL

    monkeypatch.setattr('fdrl_ros.nodes.robot.supervision_queue.save_supervision', fail)
    if ended:
        with pytest.raises(StoreError):
            desk.queue.close(ended)
    else:
        desk.queue.close(ended)
    success, words = desk.answers[Command.TAKE_OVER]
    assert not success and 'surgeon drives; but a restart may undo it: the disk' in words
    success, words = desk.answers[Command.LOCK]
    assert not success and 'nothing has changed; but a restart may obey it: the disk' in words
