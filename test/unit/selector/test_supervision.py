# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The surgeon's word: obeyed or refused, never forgotten, and never half understood."""

import json

from fdrl_ros.errors import StoreError, SupervisionError
from fdrl_ros.selector.candidates.candidate import HOLD
from fdrl_ros.selector.candidates.supervision import (
    BY_TOPIC,
    Command,
    command_named,
    load_supervision,
    NAMED,
    save_supervision,
    Supervision,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, RuleBasedStateMachine
import pytest

KNOWN = frozenset({'global', 'hospital_1', 'hospital_2'})
NAMES = st.sampled_from([*sorted(KNOWN), HOLD, 'nobody', ''])
DIGEST = 'ab' * 32


class SurgeonAtTheConsole(RuleBasedStateMachine):
    """Orders in any order, beside sets and flags that are as simple as can be."""

    def __init__(self) -> None:
        super().__init__()
        self.word = Supervision()
        self.vetoed: set[str] = set()
        self.locked = ''
        self.surgeon = False
        self.pinned: dict[str, str] = {}

    @rule(command=st.sampled_from(Command), name=NAMES)
    def order(self, command, name):
        before = self.word
        wanted = bool(name) == (command in NAMED)
        known = not name or name in KNOWN or (name == HOLD and command is Command.LOCK)
        blocked = command is Command.LOCK and name in self.vetoed
        if not wanted or not known or blocked:
            with pytest.raises(SupervisionError):
                self.word.ordered(command, name, KNOWN)
            assert self.word == before
            return
        self.word = self.word.ordered(command, name, KNOWN)
        if command is Command.LOCK:
            self.locked = name
        elif command is Command.UNLOCK:
            self.locked = ''
        elif command is Command.VETO:
            self.vetoed.add(name)
        elif command is Command.ALLOW:
            self.vetoed.discard(name)
        else:
            self.surgeon = command is Command.TAKE_OVER

    @rule(name=st.sampled_from(sorted(KNOWN)), digest=st.sampled_from(['', DIGEST, 'cd' * 32]))
    def pin(self, name, digest):
        self.word = self.word.with_pin(name, digest)
        self.pinned[name] = digest

    @invariant()
    def it_is_what_was_ordered(self):
        assert self.word.locked == self.locked
        assert self.word.vetoed == self.vetoed
        assert self.word.surgeon == self.surgeon
        assert self.word.pinned == {key: each for key, each in self.pinned.items() if each}

    @invariant()
    def it_survives_the_disk(self):
        assert Supervision.from_json(self.word.to_json()) == self.word

    @invariant()
    def hold_is_never_vetoed(self):
        assert HOLD not in self.word.vetoed


SurgeonAtTheConsole.TestCase.settings = settings(max_examples=20, deadline=None)
TestSurgeonAtTheConsole = SurgeonAtTheConsole.TestCase


def test_an_order_that_is_none_or_about_nobody_names_those_there_are():
    with pytest.raises(SupervisionError, match='lock, unlock, veto, allow, take_over, hand_back'):
        command_named('explode')
    for command, last in ((Command.LOCK, 'hospital_2, hold'), (Command.VETO, 'hospital_2')):
        with pytest.raises(SupervisionError, match=f"'nobody': expected .*{last}$"):
            Supervision().ordered(command, 'nobody', KNOWN)


def test_the_words_say_that_a_robot_holds_whose_locked_policy_is_vetoed():
    word = Supervision('global', frozenset({'global', 'hospital_1'}))
    assert word.in_words() == (
        'the selector drives; global alone may act; global is vetoed, so the robot holds; '
        'hospital_1 is vetoed'
    )
    assert 'holds' not in Supervision('global', frozenset({'hospital_1'})).in_words()
    driven = Supervision('global', frozenset({'global'}), surgeon=True)
    assert 'holds' not in driven.in_words(), 'the surgeon drives'


def test_word_is_on_the_disk_and_a_damaged_one_lets_no_robot_begin(tmp_path):
    path = tmp_path / 'supervision.json'
    assert load_supervision(path) == Supervision(), 'where nothing was said'
    word = Supervision('global', frozenset({'hospital_1'}), {'global': DIGEST}, True)
    save_supervision(path, word)
    assert load_supervision(path) == word
    (tmp_path / 'folder').mkdir()
    with pytest.raises(StoreError, match='cannot write'):
        save_supervision(tmp_path / 'folder', word)
    good = json.loads(word.to_json())
    for bad in (
        '',
        '[]',
        path.read_text()[:-3],
        json.dumps({**good, 'format': 2}),
        json.dumps({**good, 'more': 1}),
        json.dumps({**good, 'surgeon': 'no'}),
        json.dumps({**good, 'vetoed': 'global'}),
        json.dumps({**good, 'pinned': {'global': 'newest'}}),
        json.dumps({key: value for key, value in good.items() if key != 'surgeon'}),
    ):
        path.write_text(bad)
        with pytest.raises(StoreError, match='vetoed, locked and took over'):
            load_supervision(path)


def test_what_nobody_signs_only_takes_the_arm_away():
    assert BY_TOPIC == {Command.TAKE_OVER}
