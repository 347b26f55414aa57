# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What operating rooms have and a plain simulator lacks: disturbances, and the gap between them.

Disturbances differ from operation to operation and any simulator can draw them: latency, noise of
the force sensor, further spread of servo lag and stiffness. The gap is what the public simulator
does not know: calibration errors and force gains of the instruments, and procedures that differ
from the textbook. One part of it is common to all hospitals, which have the same make of arm; the
other part is each hospital's own and grows with H. Levels and reasons are in config/world.yaml.
"""

from dataclasses import dataclass
import math
from typing import NamedTuple

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.runtime.ranges import check_number
from fdrl_ros.surgery.constants import Group
from fdrl_ros.surgery.patient.patient import Point
import numpy as np

MOST_GAP = 4.0
"""Widest gap that patients are defined for."""

_LEVELS, _GAP, _STIFFNESS = Group('disturbance'), Group('gap'), Group('stiffness')


@dataclass(frozen=True)
class Conditions:
    """
    Under which conditions a federation's patients are operated on.

    :param gap: how far hospitals are from the public simulator, 0 to 4; the default levels of
        config/world.yaml are those at 1.
    :param disturbances: whether latency, noise, lag and stiffness vary between operations.
    """

    gap: float = 0.0
    disturbances: bool = False

    def __post_init__(self) -> None:
        """
        Refuse what is not defined.

        :raises SettingError: on a gap out of range, or disturbances that are not true or false.
        """
        check_number('gap', self.gap, 0.0, MOST_GAP)
        if not isinstance(self.disturbances, bool):
            raise SettingError('disturbances', self.disturbances, 'true or false')


NO_DISTURBANCE = Conditions()


@dataclass(frozen=True)
class Instruments:
    """
    What sets the instruments and procedures of one hospital apart from the public simulator's.

    :param calibration: how far the robot takes everything to be from its true place, m.
    :param force_gain: measured force for each newton.
    :param protocol: factor of the textbook's target forces and depths of cut.
    """

    calibration: Point = (0.0, 0.0, 0.0)
    force_gain: float = 1.0
    protocol: float = 1.0


def instruments_of(seed: int, hospital: int, strength: float, gap: float) -> Instruments:
    """
    Return the instruments of a hospital.

    :param seed: of the federation.
    :param hospital: from 0.
    :param strength: H (2 - H), how far hospitals are apart.
    :param gap: as :class:`Conditions` has it.
    """
    if gap == 0.0:
        return Instruments()
    own = strength * np.random.default_rng([Stream.GAP, seed, hospital]).uniform(-1.0, 1.0, 5)
    x, y, z, gain, protocol = own.tolist()
    most = math.log(_GAP.protocol_most)
    asked = gap * (_GAP.protocol_common + _GAP.protocol_hospital * protocol)
    return Instruments(
        (
            gap * (_GAP.calibration_common_x + _GAP.calibration_hospital * x),
            gap * (_GAP.calibration_common_y + _GAP.calibration_hospital * y),
            gap * (_GAP.calibration_common_z + _GAP.calibration_hospital * z),
        ),
        math.exp(gap * (_GAP.force_gain_common + _GAP.force_gain_hospital * gain)),
        math.exp(min(max(asked, -most), most)),
    )


class Disturbances(NamedTuple):
    """Numbers of a :class:`.patient.Patient` that an operation's disturbances change."""

    young_modulus: float
    servo_lag: float
    latency: int = 0
    force_noise: float = 0.0


def disturbed(young_modulus: float, servo_lag: float, key: list[int]) -> Disturbances:
    """
    Return the disturbances of the operation on a patient.

    :param young_modulus: of the patient without them, Pa.
    :param servo_lag: of the arm without them, s.
    :param key: of the patient's random stream.
    """
    rng = np.random.default_rng([Stream.DISTURBANCES, *key])
    noise, (lag, stiffness) = float(rng.random()), rng.standard_normal(2).tolist()
    modulus = young_modulus * math.exp(_LEVELS.stiffness_spread * stiffness)
    low, high = round(_LEVELS.latency_low), round(_LEVELS.latency_high)
    return Disturbances(
        min(max(modulus, _STIFFNESS.least), _STIFFNESS.most),
        servo_lag * math.exp(_LEVELS.lag_spread * lag),
        int(rng.integers(low, high + 1)),
        _LEVELS.force_noise * noise,
    )
