# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A server's process loads its own area: nothing of the world, the arms or the selector."""

import subprocess
import sys

import pytest

FOREIGN = (
    'fdrl_ros.deployment.parties.hospital',
    'fdrl_ros.deployment.parties.policy_validation',
    'fdrl_ros.deployment.robot',
    'fdrl_ros.experiments',
    'fdrl_ros.selector',
    'fdrl_ros.shield',
    'fdrl_ros.surgery',
    'fdrl_ros.worlds',
    'gymnasium',
    'matplotlib',
    'pybullet',
    'scipy.fft',
    'scipy.signal',
    'scipy.special',
    'scipy.stats',
    'torch',
)

LOOK = """
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.nodes.{node} import {kind} as Node
import sys
from pathlib import Path
plan = Plan.read(Path('/dev/null'))
groups = [plan.kind(name) for name in Node.groups], [getattr(plan, name) for name in Node.groups]
print(*sys.modules)
"""


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh process has after some code."""
    found = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return set(found.stdout.split())


@pytest.mark.parametrize(
    ('node', 'kind', 'allowed'),
    [
        ('aggregator', 'AggregatorNode', set()),
        # Its parameters have the settings of the world in which it has policies tested.
        ('key_authority', 'KeyAuthorityNode', {'fdrl_ros.surgery', 'fdrl_ros.surgery.settings'}),
    ],
)
def test_servers_load_nothing_of_world_arm_or_selector(
    node: str, kind: str, allowed: set[str]
) -> None:
    loaded = loaded_by(LOOK.format(node=node, kind=kind))
    assert f'fdrl_ros.nodes.{node}' in loaded
    foreign = {
        each for each in loaded if any(f'{each}.'.startswith(f'{name}.') for name in FOREIGN)
    }
    assert foreign == allowed
