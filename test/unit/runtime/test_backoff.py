# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pauses after failures double, each for itself, and end when something went well."""

from fdrl_ros.runtime.backoff import Backoff


def test_pauses_double_up_to_the_longest_until_it_went_well():
    backoff = Backoff(2.0, 7.0)
    assert [backoff.fail('one', 10.0) for _ in range(4)] == [2.0, 4.0, 7.0, 7.0]
    assert backoff.fail('other', 10.0) == 2.0
    backoff.forget('one')
    backoff.forget('never heard of')
    assert backoff.waiting(10.0) == {'other'} and backoff.fail('one', 20.0) == 2.0


def test_what_failed_waits_for_its_pause_or_for_good():
    backoff = Backoff(2.0, 7.0)
    backoff.fail('one', 10.0)
    backoff.fail('other', 11.0)
    assert backoff.waiting(11.5) == {'one', 'other'}
    assert backoff.waiting(12.0) == {'other'} and not backoff.waiting(13.0)
    backoff.give_up('one')
    assert backoff.waiting(1e9) == {'one'}
    backoff.forget('one')
    assert not backoff.waiting(13.0) and backoff.fail('one', 13.0) == 2.0
