# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
1,000 random schedules of drop-outs, 200 in which deadlines pass meanwhile, 1,000 with liars.

Takes about fifteen minutes; run by `make nightly NIGHTLY=test/nightly/test_dropouts_in_full.py`.
"""

from collections import Counter

import pytest
from support.dropouts import run_hurried, run_schedule
from support.lying_schedules import run_lying

SETTINGS = {'hospitals': [5, 10], 'schedules': 1000, 'hurried': 200, 'lying': 1000}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ('run', 'name'),
    [(run_schedule, 'schedules'), (run_hurried, 'hurried'), (run_lying, 'lying')],
)
def test_every_round_ends_with_the_exact_sum_or_decrypts_nothing(run, name, figures):
    found: Counter = Counter()
    sizes = SETTINGS['hospitals']
    for seed in range(SETTINGS[name] // len(sizes)):
        for hospitals in sizes:
            found += run(seed, hospitals)
    figures.append(dict(found))
    assert found[name] == SETTINGS[name]
