# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Links are good once and for a while; sessions end after half a day, or when they are left."""

from itertools import count

from fdrl_ros.page.sessions import (
    EntryRefused,
    LIFE,
    MOST_SESSIONS,
    Person,
    Role,
    Sessions,
)
import pytest

ADA = Person('Ada', Role.SURGEON)


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
    cookie, session = made.sessions.enter(token)
    assert session.person == ADA and made.sessions.find(cookie) is session
    with pytest.raises(EntryRefused, match='wrong, used or expired'):
        made.sessions.enter(token)
    assert made.sessions.find(token) is None and made.sessions.find(None) is None


def test_a_link_expires(made):
    token = made.sessions.invite(ADA)
    made.now += 600.0
    with pytest.raises(EntryRefused):
        made.sessions.enter(token)


def test_wrong_links_from_a_host_keep_no_good_one_from_it(made):
    token = made.sessions.invite(ADA)
    for number in range(100):
        with pytest.raises(EntryRefused, match='wrong'):
            made.sessions.enter(f'guess {number}')
    assert made.sessions.enter(token)


def test_sessions_end_after_half_a_day_however_much_they_are_used(made):
    cookie, _ = made.sessions.enter(made.sessions.invite(ADA))
    for _ in range(4):
        made.now += LIFE / 4
        assert made.sessions.find(cookie)
    made.now += 1.0
    assert made.sessions.find(cookie) is None


def test_a_session_that_is_left_is_no_more(made):
    (one, _), (other, _) = (made.sessions.enter(made.sessions.invite(ADA)) for _ in range(2))
    made.sessions.leave(one)
    made.sessions.leave(one)
    assert made.sessions.find(one) is None and made.sessions.find(other)


def test_nothing_piles_up(made):
    cookies = []
    for _ in range(MOST_SESSIONS + 1):
        made.now += 1.0
        cookies.append(made.sessions.enter(made.sessions.invite(ADA))[0])
    assert made.sessions.find(cookies[0]) is None and made.sessions.find(cookies[1])


def test_tokens_are_not_kept():
    sessions = Sessions(lambda: 0.0, 60.0)
    token = sessions.invite(ADA)
    assert len(token) >= 40 and token != sessions.invite(ADA)
    assert token not in repr(sessions._links)
