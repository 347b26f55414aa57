# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Links are good once and for a while; sessions end when they are idle; guessing is slowed."""

from itertools import count

from fdrl_ros.page.sessions import (
    EntryRefused,
    IDLE,
    MOST_ADDRESSES,
    MOST_SESSIONS,
    Person,
    Role,
    Sessions,
    WINDOW,
    WRONG,
)
import pytest

ADA = Person('Ada', Role.SURGEON)
HERE = '127.0.0.1'


class Made:
    """Sessions with a clock that the test sets."""

    def __init__(self) -> None:
        self.now, numbers = 100.0, count()
        self.sessions = Sessions(lambda: self.now, 600.0, lambda: f'token {next(numbers)}')


@pytest.fixture
def made() -> Made:
    return Made()


def test_a_link_lets_one_browser_in(made):
    token = made.sessions.invite(ADA)
    cookie, session = made.sessions.enter(token, HERE)
    assert session.person == ADA and made.sessions.find(cookie) is session
    with pytest.raises(EntryRefused, match='wrong, used or expired'):
        made.sessions.enter(token, HERE)
    assert made.sessions.find(token) is None and made.sessions.find(None) is None


def test_a_link_expires(made):
    token = made.sessions.invite(ADA)
    made.now += 600.0
    with pytest.raises(EntryRefused):
        made.sessions.enter(token, HERE)


def test_who_guesses_waits_and_nobody_else(made):
    token, other = made.sessions.invite(ADA), made.sessions.invite(ADA)
    for number in range(WRONG):
        with pytest.raises(EntryRefused, match='wrong'):
            made.sessions.enter(f'guess {number}', '10.0.0.1')
    with pytest.raises(EntryRefused, match='wait a minute'):
        made.sessions.enter(token, '10.0.0.1')
    made.sessions.enter(other, HERE)
    made.now += WINDOW
    made.sessions.enter(token, '10.0.0.1')


def test_sessions_end_after_half_a_day_without_use(made):
    cookie, _ = made.sessions.enter(made.sessions.invite(ADA), HERE)
    made.now += IDLE
    assert made.sessions.find(cookie, use=False)
    assert made.sessions.find(cookie)
    made.now += IDLE + 1.0
    assert made.sessions.find(cookie) is None


def test_nothing_piles_up(made):
    cookies = []
    for _ in range(MOST_SESSIONS + 1):
        made.now += 1.0
        cookies.append(made.sessions.enter(made.sessions.invite(ADA), HERE)[0])
    assert made.sessions.find(cookies[0]) is None and made.sessions.find(cookies[1])
    for number in range(2 * MOST_ADDRESSES):
        with pytest.raises(EntryRefused):
            made.sessions.enter('guess', f'address {number}')
    assert len(made.sessions._wrong) == MOST_ADDRESSES


def test_tokens_are_not_kept():
    sessions = Sessions(lambda: 0.0, 60.0)
    token = sessions.invite(ADA)
    assert len(token) >= 40 and token != sessions.invite(ADA)
    assert token not in repr(sessions._links)
