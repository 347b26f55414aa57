# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the shield keeps, and what it takes for granted of patients, arms and sensors."""

from dataclasses import dataclass, fields, replace

from fdrl_ros.settings import setting, Settings
from fdrl_ros.shield.depth_tables import Bounds
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import TICK

USUAL = ('swing', 'stiffest', 'speed', 'acceleration')
"""Bounds that have a usual value besides the greatest one."""


@dataclass(frozen=True)
class ShieldSettings(Settings):
    """
    The shield's limits and assumptions.

    The hard stop is kept under the wide bounds, which hold for every patient of the world; the
    procedure's own force limit under the usual ones, which hold for most.
    """

    active: bool = setting(True, 'whether actions are vetoed at all')
    keep_limit: bool = setting(
        False,
        "whether policies keep the procedure's own force limit too, not the hard stop alone; "
        'a robot that holds does in any case',
    )
    damage_limit: float = setting(
        2.0, 'damage of one case that no action may lead beyond', unit='N s', minimum=0.0
    )
    stiffest: float = setting(
        constant('stiffness.most'), 'greatest stiffness of tissue', unit='Pa', minimum=2000.0
    )
    damping: float = setting(
        constant('patient.damping_high'),
        'greatest damping of tissue',
        limits=(0.0, 8.0),
        unit='s/m',
    )
    speed: float = setting(0.04, 'greatest speed of the surface', limits=(1e-4, 0.05), unit='m/s')
    acceleration: float = setting(
        0.3, 'greatest acceleration of the surface', limits=(1e-4, 5.0), unit='m/s^2'
    )
    swing: float = setting(
        0.02, 'furthest way of the surface from lowest to highest', unit='m', minimum=1e-4
    )
    rate: float = setting(
        5.6, 'greatest rate of breathing, coughs included', unit='rad/s', minimum=0.1
    )
    surge: float = setting(
        0.007, 'greatest speed that a cough adds as it grows', unit='m/s', minimum=0.0
    )
    slope: float = setting(0.05, 'greatest slope of the surface', unit='m/m', minimum=0.0)
    registration: float = setting(
        0.008, 'greatest error of the planned height of the surface', unit='m', minimum=0.0
    )
    slowest: float = setting(
        constant('hospital.servo_lag') * constant('hospital.servo_ratio'),
        'greatest lag of the arm behind its set-point',
        limits=(0.02, 0.5),
        unit='s',
    )
    latency: float = setting(
        TICK, 'longest time from a state to its action', limits=(0.0, TICK), unit='s'
    )
    force_error: float = setting(
        0.02, 'greatest error of the measured force', limits=(0.0, 5.0), unit='N'
    )
    arm_error: float = setting(
        0.0003, 'how far the arm can be off its first-order lag', unit='m', minimum=0.0
    )
    position_error: float = setting(
        0.00002, "greatest error of the tip's measured height", limits=(0.0, 0.001), unit='m'
    )
    usual_swing: float = setting(
        0.006, 'way from lowest to highest that most surfaces keep to', unit='m', minimum=1e-4
    )
    usual_stiffest: float = setting(
        20000.0, 'stiffness that most tissue is below', unit='Pa', minimum=2000.0
    )
    usual_speed: float = setting(
        0.01, 'speed that most surfaces are below', limits=(1e-4, 0.05), unit='m/s'
    )
    usual_acceleration: float = setting(
        0.03, 'acceleration that most surfaces are below', unit='m/s^2', minimum=1e-4
    )

    def wide_bounds(self) -> Bounds:
        """Return the bounds under which the hard stop is kept."""
        shared = {each.name for each in fields(Bounds)} & vars(self).keys()
        return Bounds(
            softest=constant('stiffness.least'),
            quickest=constant('hospital.servo_lag'),
            **{name: getattr(self, name) for name in shared},
        )

    def usual_bounds(self) -> Bounds:
        """Return the bounds under which the procedure's force limit is kept."""
        wide = self.wide_bounds()
        narrower = {
            name: min(getattr(self, f'usual_{name}'), getattr(wide, name)) for name in USUAL
        }
        return replace(wide, latency=0.0, **narrower)
