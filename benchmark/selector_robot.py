# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The nodes that benchmark/selector.py measures, each in a process of its own.

The selectors run as `fdrl` starts them: armed, in a prepared directory, with the policies of a
federation, which arrive signed over latched topics and are checked and valued there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

from fdrl_ros.deployment.bringup import BringupSettings, environment, robot_graph, RoomArguments
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.namespaces import FEDERATION
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy
from fdrl_ros.federation.protocol.store import Store
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.policy import digest_of, encode_weights
import numpy as np
from selector_room import Camera, Room
from selector_work import SEED

ROBOT, ECHO = 'robot', 'echo'
"""What names of robots and of echo nodes begin with; numbers follow."""

HOSPITALS = 7

LONGEST = 300.0
"""Seconds after which the candidates are not waited for any longer."""

PLAN = Plan().changed(
    {
        'federation': {'hospitals': HOSPITALS, 'seed': SEED},
        'pretraining': {'patients': 20, 'steps': 500},
        'value': {'patients': 12, 'checked': 2, 'redraws': 16},
        'selector': {'hold_handicap': 1000.0},
        'safety': {
            'patients': 16,
            'snapshots': 4,
            'force_share': 1.0,
            'workspace_share': 1.0,
            'one_action_share': 1.0,
            'force_failures': 1.0,
            'return_margin': 1000.0,
        },
        'world': {'mode': 'kinematic'},
    }
)


class Release:
    """The public starting policy as the federation's, and near ones as the hospitals' own."""

    def __init__(self, room: Room, layout: Layout, hospitals: tuple[str, ...]) -> None:
        """Sign and publish them; they are there for as long as this lives."""
        weights = load_policy(layout.pretrained).weights
        rng = np.random.default_rng(SEED)
        publish = room.node.create_publisher
        self._publishers = [publish(ros.GlobalPolicy, f'/{FEDERATION}/policy', qos.LATCHED)]
        message = self._channel(layout, 'key_authority').sign(
            GlobalPolicy,
            1,
            0,
            weights=encode_weights(weights),
            digest=digest_of(weights),
            contributors=PLAN.hospitals,
            updates_root=b'',
            rolled_back=False,
            secure=False,
            reason='for a measurement',
        )
        self._publishers[0].publish(to_ros(message, ros.GlobalPolicy()))
        for name in hospitals:
            own = (weights * (1.0 + 0.01 * rng.normal(size=weights.shape))).astype(np.float32)
            publisher = publish(ros.HospitalPolicy, f'/{name}/policy', qos.LATCHED)
            released = self._channel(layout, name).sign(
                HospitalPolicy,
                1,
                0,
                weights=encode_weights(own),
                digest=digest_of(own),
                unit='transition',
                epsilon=1.0,
                delta=1e-5,
                secure=False,
            )
            publisher.publish(to_ros(released, ros.HospitalPolicy()))
            self._publishers.append(publisher)

    @staticmethod
    def _channel(layout: Layout, name: str) -> Channel:
        identity, roster = layout.credentials(name)
        return Channel(identity, roster, Store())


@contextmanager
def selectors(
    room: Room,
    settings: BringupSettings,
    robots: int,
    policies: int,
    parameters: Mapping[str, Any],
) -> Iterator[dict[str, int]]:
    """
    Run selectors until they have all candidates, and go on running them.

    :param robots: how many there are, of one selector each.
    :param policies: how many each has to choose from, 1 to 8.
    :param parameters: of the nodes, besides those that every one has.
    :returns: the process of each, by namespace.
    :raises SystemExit: if one has not within :data:`LONGEST`.
    """
    names = [f'{ROBOT}_{number}' for number in range(1, robots + 1)]
    layout = prepare(Path(settings.directory), PLAN)
    with Runner(settings, layout.log) as runner:
        hospitals = PLAN.hospitals[: policies - 1]
        release = Release(room, layout, hospitals)
        wanted = {'global', *hospitals}
        labels = {f'/{name}': f'{name}.selector' for name in names}
        for name in names:
            (spec,) = (e for e in robot_graph(settings, name) if e.executable == 'selector')
            runner.start([replace(spec, parameters={**spec.parameters, **parameters})])

        def waiting() -> list[str]:
            known = {
                each: room.health(f'{each}/selector').get('candidates', '') for each in labels
            }
            return [each for each in labels if not wanted <= set(known[each].split(', '))]

        if not room.spin(lambda: runner.poll() or not waiting(), LONGEST) or waiting():
            log = runner.log_file(labels[waiting()[0]]).read_text('utf-8')
            raise SystemExit(f'no selector with {len(wanted)} policies:\n{log}')
        yield {name: runner.process_id(label) for name, label in labels.items()}
        del release


@contextmanager
def segmenter(room: Room, settings: BringupSettings, file: Path) -> Iterator[Camera]:
    """
    Run the segmenter of the first robot; yield the camera that it looks through.

    :param file: of a trained segmenter.
    :raises SystemExit: if it does not tell within :data:`LONGEST` what it sees.
    """
    name = f'{ROBOT}_1'
    camera = Camera(room, f'/{name}')
    (spec,) = (
        each
        for each in robot_graph(settings, name, room=RoomArguments(segmenter=str(file)))
        if each.executable == 'segmenter'
    )
    with Runner(settings, Layout(Path(settings.directory)).log) as runner:
        runner.start([spec])
        with camera.running(1.0) as latencies:
            if not room.spin(lambda: latencies or runner.poll(), LONGEST) or not latencies:
                log = runner.log_file(spec.label).read_text('utf-8')
                raise SystemExit(f'the segmenter sees nothing:\n{log}')
        yield camera


@contextmanager
def echoes(settings: BringupSettings, count: int) -> Iterator[dict[str, int]]:
    """Run echo nodes; yield the process of each, by namespace."""
    variables = os.environ | environment(settings, settings.robot_domain)
    script = Path(__file__).with_name('selector_echo.py')
    processes = {
        name: subprocess.Popen([sys.executable, str(script), name], env=variables)
        for name in (f'/{ECHO}_{number}' for number in range(1, count + 1))
    }
    try:
        yield {name: process.pid for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep so many cores busy with counting."""
    counting = [subprocess.Popen([sys.executable, '-c', 'while True: pass']) for _ in range(cores)]
    try:
        yield
    finally:
        for each in counting:
            each.kill()
            each.wait()
