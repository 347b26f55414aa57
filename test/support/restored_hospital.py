# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A hospital whose whole machine is restored from a backup."""

import shutil

NAME = 'hospital_1'
ENDS = ('', '-wal')  # a state file, and the newest writes to it while it is open


def run_to_policy(bench, round):
    def there():
        held = (bench.parties[name].policy for name in bench.names)
        return all(each is not None and each.envelope.round == round for each in held)

    assert bench.run(there)


def backup(bench):
    """Copy all that a hospital keeps: state, which has its last update, and ledger."""
    for end in ENDS:
        shutil.copy(bench.directory / f'{NAME}.sqlite{end}', bench.directory / f'backup{end}')
    return list(bench.learners[NAME].links)


def restore(bench, links):
    """Put a whole machine back; what it trains from now on is other than what it had trained."""
    bench.kill(NAME)
    for end in ENDS:
        shutil.copy(bench.directory / f'backup{end}', bench.directory / f'{NAME}.sqlite{end}')
    learner = bench.learners[NAME]
    learner.links, learner.life = links, 'restored'
    bench.join(NAME)
