# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Home policies over DDS: the same as in process, and for the own robots alone."""

from pathlib import Path
import shutil

from fdrl_ros.deployment.bringup import federation_graph, robot_graph, RoomArguments
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import HOME
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.robot.robot_policies import RobotPolicies
from fdrl_ros.errors import SettingError
from fdrl_ros.policy import digest_of
from node.conftest import PLAN, play
import numpy as np
import pytest
from support.node_process import Process

AT_HOME = PLAN.changed({'home': {'epochs': 3}})


@pytest.fixture
def directory(reference, tmp_path) -> Path:
    """Return the prepared directory of a plan with a home policy."""
    copied = Path(shutil.copytree(reference.directory, tmp_path / 'federation'))
    Layout(copied).plan.write_text(AT_HOME.to_yaml())
    return copied


def test_the_same_seed_gives_the_same_home_policies_as_in_process(live, directory, tmp_path):
    copied = Path(shutil.copytree(directory, tmp_path / 'played'))
    digest = play(Layout(copied), AT_HOME)
    live.runner.start(federation_graph(live.settings, PLAN.hospitals))
    assert live.finish() == digest

    policies = [Layout(directory).party(name) / HOME for name in PLAN.hospitals]
    live.wait(lambda: all(each.exists() for each in policies))
    for name in PLAN.hospitals:
        here, there = (
            load_policy(Layout(each).party(name) / HOME) for each in (directory, copied)
        )
        np.testing.assert_array_equal(here.weights, there.weights)
        assert here.home == there.home
    # Nothing was released; a robot of a hospital has its home policy all the same.
    room = RoomArguments(home='hospital_2')
    _, selector = robot_graph(live.settings, 'robot_1', room=room)
    live.runner.start([selector])
    layout = Layout(directory)

    def known() -> dict[str, tuple[str, str]]:
        if not layout.party('robot_1').is_dir():
            return {}
        versions = RobotPolicies(layout, 'robot_1').registry.versions
        return {each.name: (each.owner, each.digest) for each in versions}

    live.wait(lambda: known().keys() == {'global', 'home'})
    kept = load_policy(layout.party('hospital_2') / HOME)
    assert known()['home'] == ('hospital_2', digest_of(kept.weights).hex())


def test_hospital_that_is_in_no_federation_is_refused(reference, lone_domain):
    with pytest.raises(SettingError, match="hospital = 'hospital_9': expected one of the 3 hosp"):
        Process('/robot_1/env', reference.directory, lone_domain, 'hospital:=hospital_9')


@pytest.mark.parametrize('hospital', ['', 'hospital_2'])
def test_in_the_room_of_a_hospital_its_patients_come(reference, lone_domain, hospital):
    given = 'world.mode:=kinematic', f"hospital:='{hospital}'"
    process = Process('/robot_1/env', reference.directory, lone_domain, *given)
    try:
        node = process.node
        node.trigger_configure()
        names = [node._patients.patient(number, 'test').name for number in range(6)]
        cohorts = PLAN.cohorts
        expected = [cohorts[i % 3].patient(i // 3, 'test').name for i in range(6)]
        if hospital:
            expected = [cohorts[1].patient(number, 'test').name for number in range(6)]
        assert names == expected
    finally:
        process.close()
