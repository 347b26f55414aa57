# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The state of an operation on a real arm, from what is measured and a plan: as the simulated one's.

Waypoint, progress, felt contact and stiffness, and the numbers of the state come from the very
code of the simulated operation. What only a camera sees, the surface, may be measured; without it
the surface rests where it was planned.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
import math
from pathlib import Path
from typing import Any, NamedTuple

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.resources import parse_yaml
from fdrl_ros.settings import named_among
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.state import operation_values, PROCEDURE_NAMES, Seen
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.patient.patient import Patient, Point
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.outcome import rules_of
from fdrl_ros.surgery.tasks.procedures import procedure_named
from fdrl_ros.surgery.tasks.registry import task_of
from fdrl_ros.surgery.tasks.task import Reading
from fdrl_ros.surgery.tissue.contact import Felt, ForceSensor, smoothed, tissue_of
import yaml

_ABOVE = 0.05
"""Height above the goal at which a patient starts who only stands for a plan, m."""


@dataclass(frozen=True)
class OperationPlan:
    """
    What is to be done on a real arm; positions in the frame of the arm's base, z up, m.

    :param procedure: its name.
    :param patient: pseudonym of the case.
    :param goal: planned contact point on the surface: the first waypoint.
    :param destination: where a cut ends or an object goes: the last waypoint; others have none.
    :param target_force: N, and all that follow: 0 for the procedure's own.
    :param tolerance: how far from the target force counts as held, N.
    :param force_limit: that the procedure must never pass, N.
    :param hold_time: to stay within the tolerance, s.
    :param time: allowed, s.
    :param phase: of a point that circles, at the start, rad.
    :param force_noise: standard deviation of the measured force, N.
    """

    procedure: str
    patient: str
    goal: Point
    destination: Point | None = None
    target_force: float = 0.0
    tolerance: float = 0.0
    force_limit: float = 0.0
    hold_time: float = 0.0
    time: float = 0.0
    phase: float = 0.0
    force_noise: float = 0.0

    @classmethod
    def read(cls, path: Path) -> 'OperationPlan':
        """
        Read a plan from a YAML file.

        :raises SettingError: if it cannot be read, or is no plan.
        """
        try:
            document = parse_yaml(path.read_text('utf-8'))
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = getattr(error, 'strerror', None) or ' '.join(str(error).split())
            raise SettingError('plan', str(path), f'a readable YAML file: {reason}') from error
        names = [each.name for each in fields(cls)]
        if not isinstance(document, dict):
            raise SettingError('plan', str(path), 'a mapping of ' + ', '.join(names))
        for key in document:
            if key not in names:
                raise SettingError(
                    f'{path}: {key}', document[key], named_among(key, 'keys', names)
                )
        plan = cls(**_checked(document))
        plan.as_patient()
        return plan

    def as_patient(self) -> Patient:
        """
        Return a textbook patient with this plan; nothing else of it shows in a state.

        :raises SettingError: if nobody can carry out this plan.
        """
        own = procedure_named(self.procedure)
        given = {
            name: getattr(self, name)
            for name in ('target_force', 'tolerance', 'force_limit', 'hold_time')
            if getattr(self, name)
        }
        if self.time:
            given['horizon'] = max(1, round(self.time / TICK))
        x, y, z = self.goal
        return replace(
            public_cohort(0, procedures=(own.name,)).patient(0),
            name=self.patient,
            procedure=replace(own, **given),
            goal=self.goal,
            start=(x, y, z + _ABOVE),
            destination=self.destination or (x + _ABOVE, y, z),
            registration_error=0.0,
            calibration=(0.0, 0.0, 0.0),
            force_gain=1.0,
            force_noise=self.force_noise,
            protocol=1.0,
            breathing_phase=self.phase,
            events=(),
        )


def _checked(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a plan, each of its kind."""
    made: dict[str, Any] = {}
    for each in fields(OperationPlan):
        value = document.get(each.name)
        if value is None:
            if each.name in ('procedure', 'patient', 'goal'):
                raise SettingError(each.name, None, 'given in the plan')
            continue
        if each.name in ('procedure', 'patient'):
            good = isinstance(value, str) and 0 < len(value) <= 127
            expected = 'a name of at most 127 letters'
        elif each.name in ('goal', 'destination'):
            good = isinstance(value, list) and len(value) == 3 and all(map(_is_number, value))
            expected = 'three numbers, m'
            value = tuple(map(float, value)) if good else value
        else:
            good, expected = _is_number(value) and value >= 0, 'a number of at least 0'
            value = float(value) if good else value
        if not good:
            raise SettingError(each.name, value, expected)
        made[each.name] = value
    return made


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class Measured(NamedTuple):
    """
    What is measured at one moment.

    :param target: the set-point of the tip, m.
    :param tip: measured, m.
    :param force: that pushes the tip away from the tissue, N.
    :param jaw: opening, 1 is open.
    :param jaw_target: what the jaw was last told, 1 is open.
    :param surface: height of the surface, m, and its upward speed, m/s; None where nobody sees it.
    """

    target: Point
    tip: Point
    force: float
    jaw: float = 0.0
    jaw_target: float = 0.0
    surface: tuple[float, float] | None = None


class MeasuredOperation:
    """
    One operation by a plan; its time is that of the stamps since the first motion command.

    :param plan: of it.
    """

    def __init__(self, plan: OperationPlan) -> None:
        """
        Begin anew.

        :raises SettingError: if nobody can carry out the plan.
        """
        self.plan = plan
        patient = plan.as_patient()
        settings = WorldSettings()
        self._task = task_of(patient, tissue_of(patient))
        self._rules = rules_of(patient, settings)
        self._sensor, self._felt = ForceSensor(patient, settings), Felt()
        self._scene = self._task.begin()
        self._names = [1.0 if name == plan.procedure else 0.0 for name in PROCEDURE_NAMES]
        self._goal_height = patient.goal[2]
        self._began: float | None = None
        self._ticks = 0
        self._touched = math.nan
        self._smooth = self._rate = self._tick_force = 0.0

    @property
    def over(self) -> bool:
        """Return whether all is done, or the time is up."""
        return bool(self._scene.done >= 1.0 or self._ticks >= self._rules.horizon)

    def begin(self, time: float) -> None:
        """Let the time of the operation begin, unless it has; s."""
        if self._began is None:
            self._began = time

    def take(self, now: Measured, time: float) -> list[float]:
        """
        Take what was measured, and return the state.

        :param time: its stamp, s.
        :returns: values of OPERATION_FIELDS, in their order and units.
        :raises StateError: if a number is not finite; nothing has changed then.
        """
        numbers = (*now.target, *now.tip, now.force, now.jaw, now.jaw_target, *(now.surface or ()))
        if not all(map(math.isfinite, numbers)):
            raise StateError(f'{now}: a number is not finite')
        noisy, felt = self._sensor.noisy, self._sensor.felt
        if math.isnan(self._touched) and not noisy and now.force >= felt:
            self._touched = now.tip[2]
        if self._began is not None:
            ticks = min(int((time - self._began) / TICK + 1e-6), int(self._rules.horizon))
            if ticks > self._ticks:
                self._tick(now, ticks - self._ticks)
        height, rise = now.surface or (self._goal_height, 0.0)
        breath, at = height - self._goal_height, self._ticks * TICK
        scene = self._scene
        seen = Seen(
            now.target,
            self._task.waypoint(float(scene.grasped), scene.done, at, breath),
            now.tip,
            self._touched,
            breath,
            rise,
            self._felt.stiffness,
        )
        values = operation_values(
            self._rules,
            (scene.done, scene.grasped),
            self._ticks,
            seen,
            (now.force, self._rate, self._contact(now.force)),
            (now.jaw, now.jaw_target),
        )
        return [*self._names, *map(float, values)]

    def _tick(self, now: Measured, count: int) -> None:
        """Judge the ticks that ended since the last one; all but one were missed."""
        self._ticks += count
        period = count * TICK
        height, _ = now.surface or (self._goal_height, 0.0)
        breath = height - self._goal_height
        reading = Reading(now.tip, now.force, now.jaw, self._ticks * TICK, breath, period)
        self._task.progress(self._scene, reading)
        self._rate = (now.force - self._tick_force) / period
        self._tick_force = now.force
        if self._sensor.noisy:
            self._smooth = smoothed(self._smooth, now.force)
            if math.isnan(self._touched) and self._smooth >= self._sensor.felt:
                self._touched = now.tip[2]
        lag = now.tip[2] - now.target[2]
        self._felt.add(now.force, height - now.tip[2], self._contact(now.force), lag)

    def _contact(self, force: float) -> bool:
        """Return whether contact is felt."""
        return (self._smooth if self._sensor.noisy else force) >= self._sensor.felt
