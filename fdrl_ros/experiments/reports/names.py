# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Names of policies, hospitals and rounds for readers, in tables, plots and reports alike."""

import re
from typing import Final

_NAMES: Final = {
    'alone': 'each hospital alone',
    'bandit': 'bandit over procedures',
    'best_cumulative': 'best so far',
    'best_single': 'best single policy',
    'central': 'centralised',
    'cluster': 'global policy of a speciality',
    'controller': 'controller of the records',
    'expert': 'expert',
    'federated': 'federated, with home policies',
    'global': 'global policy',
    'global_or_hold': 'global policy or hold',
    'hindsight': 'best in hindsight (oracle)',
    'hold': 'hold still',
    'home': 'home policies',
    'pooled': 'all records in one place',
    'pretrained': 'public start',
    'public_start': 'public start',
    'random': 'random actions',
    'selector': 'selector',
    'untrained': 'untrained',
}
_NUMBERED: Final = (
    (re.compile(r'(?:alone|local)_(.+)'), '{} alone'),
    (re.compile(r'home_(.+)'), '{} at home'),
    (re.compile(r'(?:global|round)[_ ](\d+)'), 'global policy of round {}'),
)


def reader_name(name: str) -> str:
    """
    Name a policy or a party for readers: `alone_hospital_1` is `hospital 1 alone`.

    :param name: as files and settings have it; one that is not known gets spaces for underscores.
    """
    if name in _NAMES:
        return _NAMES[name]
    for pattern, words in _NUMBERED:
        if found := pattern.fullmatch(name):
            return words.format(found[1].replace('_', ' '))
    return name.replace('_', ' ')
