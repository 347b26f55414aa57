# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A sum that was begun for one request goes on for the very same updates alone."""

from dataclasses import replace
from types import SimpleNamespace

from fdrl_ros.federation.key_authority.key_authority import CheckedRequest, VerifiedSum
import pytest

REQUEST = SimpleNamespace(survivors=('hospital_1', 'hospital_2'), update_hashes=b'hashes')
KEYS = SimpleNamespace(buckets=())
CHECKED = CheckedRequest(REQUEST, KEYS, members=(), setup=b'setup', hashes={}, shares={})


@pytest.mark.parametrize(
    'other',
    [
        replace(CHECKED, setup=b'another'),
        replace(CHECKED, request=SimpleNamespace(**vars(REQUEST) | {'survivors': ('a', 'b')})),
        replace(CHECKED, request=SimpleNamespace(**vars(REQUEST) | {'update_hashes': b'others'})),
    ],
    ids=['set-up', 'survivors', 'updates'],
)
def test_a_sum_of_other_updates_is_begun_anew(other):
    channel, secret = SimpleNamespace(roster=None), SimpleNamespace(public=None)
    summing = VerifiedSum(CHECKED, channel, secret, None, b'', None)
    assert not summing.go_on(other) and summing.checked is CHECKED
    again = replace(CHECKED, shares={'hospital_1': {}})
    assert summing.go_on(again) and summing.checked is again
