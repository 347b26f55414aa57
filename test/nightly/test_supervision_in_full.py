# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Fifty kills of nodes at random moments: the federation ends with the same policy, by itself.

Takes about four minutes for each launcher of this machine, `fdrl launch` and `ros2 launch`; run by
`make nightly NIGHTLY=test/nightly/test_supervision_in_full.py`.
"""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
import shutil
import signal
import time

import pytest

pytest.importorskip('rclpy', reason='ROS 2 is not sourced')

from fdrl_ros.deployment.bringup import BringupSettings  # noqa: E402, I100
from fdrl_ros.deployment.layout import Layout  # noqa: E402
from fdrl_ros.deployment.prepare import prepare  # noqa: E402
from fdrl_ros.deployment.robot.robot_policies import RobotPolicies  # noqa: E402
from node.conftest import PLAN, play, watched  # noqa: E402
from support.launchers import LAUNCHERS  # noqa: E402

SETTINGS = {'kills': 50, 'seed': 21, 'longest_wait': 3.0, 'rounds': 100}

PHASES = ('open', 'absent', 'share', 'train', 'settle', 'reveal', 'sum')

LASTING = PLAN.changed(
    {
        'rounds': {
            'rounds': SETTINGS['rounds'],
            **{f'{phase}_timeout': 120.0 for phase in PHASES},
        }
    }
)
"""A plan whose rounds wait for whoever was killed."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    """Return a prepared directory, and the digest of the policy that is made of it in process."""
    directory = tmp_path_factory.mktemp('lasting') / 'federation'
    prepare(directory, LASTING)
    played = Path(shutil.copytree(directory, tmp_path_factory.mktemp('played') / 'federation'))
    return directory, play(Layout(played), LASTING)


@pytest.mark.parametrize('launcher', LAUNCHERS, ids=lambda each: each.name)
def test_fifty_kills_at_random_moments_change_nothing(
    launcher, undisturbed, tmp_path, federation_domain, robot_domain, figures
):
    prepared, digest = undisturbed
    directory = Path(shutil.copytree(prepared, tmp_path / 'federation'))
    settings = BringupSettings(
        directory=str(directory), federation_domain=federation_domain, robot_domain=robot_domain
    )
    given = {
        'directory': directory,
        'federation_domain': federation_domain,
        'robot_domain': robot_domain,
    }
    began, random, killed = time.monotonic(), Random(SETTINGS['seed']), Counter()
    with ExitStack() as stack:
        parts = [('server', {}), ('robot', {'description': False})]
        parts += [('hospital', {'hospital': name}) for name in PLAN.hospitals]
        launches = []
        for number, (file, own) in enumerate(parts):
            folder = tmp_path / str(number)
            folder.mkdir()
            launches.append(stack.enter_context(launcher.start(folder, file, **given, **own)))
        live = stack.enter_context(watched(settings))

        def running() -> dict[str, object]:
            return {label: each for each in launches for label in each.nodes()}

        live.wait(lambda: len(running()) == 7, 60.0)
        while sum(killed.values()) < SETTINGS['kills']:
            until = time.monotonic() + random.uniform(0.0, SETTINGS['longest_wait'])
            live.wait(lambda until=until: time.monotonic() >= until, 10.0)
            assert not live.watch.finished, 'it ended before the last kill: more rounds'
            alive = running()
            if alive:
                label = random.choice(sorted(alive))
                alive[label].kill(label, signal.SIGKILL)
                killed[label] += 1
        live.wait(lambda: live.watch.finished and live.policy(SETTINGS['rounds']), 240.0)
        assert live.policy(SETTINGS['rounds']).digest == digest
        live.wait(lambda: len(running()) == 7, 30.0)

        def robot_has_it() -> bool:
            versions = RobotPolicies(Layout(directory), 'robot_1').registry.versions
            return any(each.round == SETTINGS['rounds'] for each in versions)

        live.wait(robot_has_it, 60.0)
        codes = [each.end() for each in launches]
    figures.append(
        {
            'launcher': launcher.name,
            'kills': dict(sorted(killed.items())),
            'seconds': round(time.monotonic() - began),
            'exit codes': codes,
        }
    )
    assert set(codes) == {0}
