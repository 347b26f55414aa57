# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policies of a robot on this host, whether its selector runs or not."""

from functools import partial
from pathlib import Path
from typing import Self

from fdrl_ros.deployment.layout import Layout, MAKERS, ROBOTS
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import fitted_with, same_robot
from fdrl_ros.deployment.robot.robot_network import public_start, robot_network
from fdrl_ros.deployment.robot.safety_test import basis
from fdrl_ros.errors import PolicyError, StoreBusyError, StoreError, SupervisionError
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.durable import write_whole
from fdrl_ros.selector.candidates.policy_files import POLICIES, PolicyFiles
from fdrl_ros.selector.candidates.registry import PolicyRegistry, Status
from fdrl_ros.selector.candidates.supervision import (
    command_named,
    load_supervision,
    save_supervision,
    Supervision,
    SUPERVISION_FILE,
)

NO_ROBOT = (
    'a robot has policies once it ran with a federation: `fdrl run` (or `make run`) runs one, '
    '`fdrl launch robot directory:=DIRECTORY` another; `fdrl train` runs none'
)

HOSPITAL = 'hospital'
"""File with the name of the hospital that a robot is of, in the robot's directory."""


def hospital_of(robot: Path) -> str:
    """
    Return the hospital that a robot is of, as its selector last wrote it; empty for none.

    :param robot: the robot's directory.
    :raises StoreError: if the file cannot be read.
    """
    try:
        return (robot / HOSPITAL).read_text('utf-8').strip()
    except FileNotFoundError:
        return ''
    except (OSError, ValueError) as error:
        raise StoreError(f'{robot / HOSPITAL} cannot be read: {error}') from error


def keep_hospital(robot: Path, name: str) -> None:
    """
    Write down the hospital that a robot is of.

    :raises StoreError: if it cannot be written.
    """
    if name != hospital_of(robot):
        write_whole(robot / HOSPITAL, f'{name}\n'.encode())


def value_for_robot(
    plan: Plan, start: Policy, registry: PolicyRegistry, supervision: Supervision
) -> None:
    """
    Have policies valued for the robot as those that passed their test describe it now.

    The values in use, or those being fitted, stay where they are for nearly the same robot. Where
    no policy describes the robot, as none passed its test or all are vetoed, those in use stay
    too: what was found of the robot before is more likely than that it is not off at all.

    :param start: the public start.
    :param registry: of the robot's policies.
    """
    known = tuple(each.policy for each in registry.calibrated(supervision))
    for values in (registry.values, registry.newer_values):
        if not known or same_robot(plan, values.known, known):
            known = values.known
            break
    registry.value_with(fitted_with(plan, start, known), known)


class RobotPolicies:
    """Policies and supervision in a robot's directory."""

    def __init__(self, layout: Layout, robot: str) -> None:
        """
        Read what is there, and change nothing.

        :raises SupervisionError: if there is no such robot.
        :raises FdrlError: if plan, roster, start or supervision cannot be read.
        """
        home = layout.party(robot)
        if not home.is_dir():
            whole = layout.directory.is_dir()
            words = NO_ROBOT if whole else f'name it with --directory: {MAKERS}'
            raise SupervisionError(f'{home if whole else layout.directory} is not there: {words}')
        self.plan = plan = Plan.read(layout.plan)
        network = robot_network(layout, plan)
        start = public_start(layout, plan, network)
        self.files = PolicyFiles(home)
        self.registry = PolicyRegistry(
            layout.roster(), network, plan.safety, basis=basis(plan), hospital=hospital_of(home)
        )
        self._supervision_file: Path = home / SUPERVISION_FILE
        self.supervision: Supervision = load_supervision(self._supervision_file)
        values = partial(fitted_with, plan, start)
        self.problems = self.files.load(self.registry, self.supervision, values, put_aside=False)

    @classmethod
    def of(cls, directory: Path, robot: str) -> Self:
        """
        Read what is in a directory of a federation, or of a run.

        :raises FdrlError: as `RobotPolicies`.
        """
        inner = directory / 'federation'
        return cls(Layout(inner if inner.is_dir() else directory), robot)

    @property
    def running(self) -> bool:
        """Whether a selector has the files."""
        try:
            self.files.lock().close()
        except StoreBusyError:
            return True
        return False

    def check_any(self) -> None:
        """
        Refuse a robot that has no policies and gets none, as its selector does not run.

        :raises SupervisionError: saying how it gets some.
        """
        if not (self.registry.versions or self.problems or self.running):
            raise SupervisionError(f'{self.files.folder.parent} has no policies yet: {NO_ROBOT}')

    def named(self, status: Status) -> list[str]:
        """Return the names of the policies of which a version has this status."""
        versions = self.registry.versions
        found = {
            each.name
            for each in versions
            if self.registry.status(each, self.supervision) is status
        }
        return sorted(found)

    def supervise(self, command: str, name: str) -> str:
        """
        Order something of the selector, in force when it starts.

        :returns: the supervision then, in words.
        :raises SupervisionError: if it is refused.
        :raises StoreError: if it cannot be written.
        """
        ordered = self.supervision.ordered(command_named(command), name, self.registry.names)
        return self._save(ordered)

    def pin(self, name: str, version: str) -> str:
        """
        Pin a version, or with an empty one none.

        :raises SupervisionError: if there is no such version, or it must not act.
        :raises StoreError: if it cannot be written.
        """
        if version:
            self.check_any()
        digest = self.registry.to_pin(name, version).digest if version else ''
        return self._save(self.supervision.with_pin(name, digest))

    def _save(self, supervision: Supervision) -> str:
        with self.files.lock():
            save_supervision(self._supervision_file, supervision)
        self.supervision = supervision
        return supervision.in_words()


def signed_policy(path: Path) -> Policy:
    """
    Read a policy as a robot keeps it, and check who signed it.

    :param path: a ``*.policy`` file in the robot's own directory, which has all to check it.
    :raises PolicyError: if it cannot be used, or lies elsewhere.
    :raises FdrlError: as `RobotPolicies`.
    """
    whole = path.resolve()
    home = whole.parents[1]
    layout = Layout(home.parent)
    if whole.parent.name != POLICIES or not layout.plan.exists():
        raise PolicyError(
            f'{path} is not where its robot keeps it, such as in '
            f'runs/latest/federation/{ROBOTS[0]}/{POLICIES}: only there it can be checked'
        )
    found = RobotPolicies(layout, home.name)
    for version in found.registry.versions:
        if found.files.path(version) == whole:
            return version.policy
    reasons = [each for each in found.problems if each.startswith(str(whole))]
    raise PolicyError(reasons[0] if reasons else f'{path} is no policy of {home.name}')
