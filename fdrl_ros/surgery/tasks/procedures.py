# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The procedures, surgical sub-skills each under a force limit, and the specialities that use them.

What is to be done in each is in :mod:`fdrl_ros.surgery.tasks`; its numbers are in
config/world.yaml.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.ranges import check_number


class Traits(NamedTuple):
    """
    What sets a procedure apart; its task is in :mod:`fdrl_ros.surgery.tasks.registry`.

    :param purpose: in words.
    :param heights: of the planned waypoint above the planned surface, before and after a grasp, m.
    :param aside: how far aside of the goal the waypoint can be, before and after a grasp, m.
    :param holds: what is held: 'force', for a time; 'place', for a time; or nothing.
    :param rides: the waypoint rises and falls with the surface.
    """

    purpose: str
    heights: tuple[float, float] = (0.0, 0.0)
    aside: tuple[float, float] = (0.0, 0.0)
    holds: str = ''
    rides: bool = False


TRAITS = {
    'reach': Traits(
        'bring the tip to a point above the organ, touch nothing, and stay',
        heights=(constant('reach.height'),) * 2,
        holds='place',
    ),
    'palpation': Traits('press gently on the goal until the target force holds', holds='force'),
    'retraction': Traits('press on the goal with a pad and hold the organ away', holds='force'),
    'incision': Traits(
        'draw a blade along the planned line at its depth',
        heights=(-constant('incision.depth'),) * 2,
        aside=(constant('incision.length_high') + 0.001,) * 2,
    ),
    'needle_pass': Traits(
        'pick up a needle and hand it to the other instrument',
        heights=(constant('needle_pass.height'), constant('needle_pass.rise')),
        aside=(0.0, constant('needle_pass.way_high')),
    ),
    'peg_transfer': Traits(
        'lift a ring off one peg and put it over another',
        heights=(constant('peg_transfer.height'),) * 2,
        aside=(0.0, constant('peg_transfer.way_high')),
    ),
    'follow': Traits(
        'stay with a point that circles and breathes',
        heights=(constant('follow.height'),) * 2,
        aside=(constant('follow.radius'),) * 2,
        holds='place',
        rides=True,
    ),
}
"""Every procedure. States have one number for each, so a new one makes policies begin anew."""

PROCEDURE_NAMES = tuple(TRAITS)
PRESSING = tuple(name for name, traits in TRAITS.items() if traits.holds == 'force')
"""The two that hold a force; the shipped federation trains them."""

_RANGES = {
    'target_force': (1e-3, 100.0),
    'tolerance': (0.0, 100.0),
    'warn_force': (0.0, 100.0),
    'force_limit': (1e-3, 100.0),
    'contact_radius': (1e-5, 0.1),
    'hold_time': (1e-3, 3600.0),
    'horizon': (1, 100_000),
}
"""What a procedure can ask for, in SI units and ticks; what is not held is 0."""


@dataclass(frozen=True)
class Procedure:
    """
    The numbers of one procedure.

    :param name: its name in states and messages, one of PROCEDURE_NAMES.
    :param target_force: force to hold, N; 0 where none is to be held.
    :param tolerance: how far from the target force counts as held, N.
    :param warn_force: force above which tissue takes damage, N.
    :param force_limit: force that ends the operation as a failure, N.
    :param contact_radius: radius of the instrument's rounded end, m.
    :param hold_time: time to stay within the tolerance, s; 0 where none is asked for.
    :param horizon: time allowed, ticks of 50 ms.
    """

    name: str
    target_force: float
    tolerance: float
    warn_force: float
    force_limit: float
    contact_radius: float
    hold_time: float
    horizon: int

    def __post_init__(self) -> None:
        """
        Refuse what nobody can do.

        :raises SettingError: on an unknown name, or a number out of its range.
        """
        if not isinstance(self.name, str) or self.name not in PROCEDURE_NAMES:
            raise SettingError('procedure', self.name, 'one of ' + ', '.join(PROCEDURE_NAMES))
        holds = TRAITS[self.name].holds
        nothing = {'target_force': holds != 'force', 'hold_time': not holds}
        for name, (low, high) in _RANGES.items():
            some = not nothing.get(name)
            check_number(name, getattr(self, name), some * low, some * high)
        if not isinstance(self.horizon, int):
            raise SettingError('horizon', self.horizon, 'a whole number of ticks')


PROCEDURES: tuple[Procedure, ...] = tuple(
    Procedure(
        name,
        **{number: constant(f'{name}.{number}') for number in _RANGES if number != 'horizon'},
        horizon=round(constant(f'{name}.horizon')),
    )
    for name in TRAITS
)

SPECIALITIES: dict[str, dict[str, float]] = {
    'cardiac': {'follow': 0.40, 'needle_pass': 0.35, 'incision': 0.25},
    'spinal': {'palpation': 0.40, 'incision': 0.30, 'retraction': 0.30},
    'colonoscopy': {'reach': 0.40, 'palpation': 0.35, 'follow': 0.25},
    'general': {'retraction': 0.40, 'peg_transfer': 0.25, 'needle_pass': 0.20, 'palpation': 0.15},
}
"""
Share of each procedure in what a speciality does: minimally invasive cardiac surgery, spinal
surgery, colonoscopy and general surgery. Our choice: no paper gives shares of sub-skills.
"""


def procedure_named(name: str) -> Procedure:
    """
    Return a procedure by its name.

    :raises SettingError: if there is none.
    """
    if name not in PROCEDURE_NAMES:
        raise SettingError('procedure', name, 'one of ' + ', '.join(PROCEDURE_NAMES))
    return PROCEDURES[PROCEDURE_NAMES.index(name)]


def procedures_named(text: str | Sequence[str]) -> tuple[str, ...]:
    """
    Read a list such as `palpation, follow`, the name of a speciality, or `all`.

    :param text: names in one text with commas, or one by one.

    :returns: names in the order of PROCEDURES, each once.
    :raises SettingError: on what is neither, a name that is none, or no name at all.
    """
    given = text.split(',') if isinstance(text, str) else text
    if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
        raise SettingError('procedures', text, 'names, in one text with commas or one by one')
    words = [each.strip() for each in given if each.strip()]
    wanted: set[str] = set()
    for each in words:
        if each == 'all':
            wanted |= set(PROCEDURE_NAMES)
        elif each in SPECIALITIES:
            wanted |= SPECIALITIES[each].keys()
        elif each in PROCEDURE_NAMES:
            wanted.add(each)
        else:
            known = ', '.join(('all', *SPECIALITIES, *PROCEDURE_NAMES))
            raise SettingError('procedures', text, f'names out of {known}')
    if not wanted:
        raise SettingError('procedures', text, 'at least one procedure')
    return tuple(each for each in PROCEDURE_NAMES if each in wanted)


def procedure_mix(
    procedures: Sequence[str], speciality: str, strength: float
) -> tuple[float, ...]:
    """
    Return the share of each procedure where one speciality is done more than the others.

    :param procedures: those that are done at all.
    :param strength: 0 for equal shares, 1 for the speciality's own; between them, in between.
    :returns: shares that sum to 1, in the order of `procedures`.
    """
    count = len(procedures)
    own = [SPECIALITIES[speciality].get(each, 0.0) for each in procedures]
    total = sum(own)
    if total == 0.0:
        return (1.0 / count,) * count
    return tuple((1.0 - strength) / count + strength * each / total for each in own)
