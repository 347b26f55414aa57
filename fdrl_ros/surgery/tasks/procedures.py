# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The procedures, surgical sub-skills each under a force limit, and the specialities that use them.

What is to be done in each is in :mod:`fdrl_ros.surgery.tasks`; its numbers are in
config/world.yaml.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.ranges import check_number

TASK_KINDS = ('hover', 'press', 'incision', 'transfer')
"""What can be done: a class of :mod:`fdrl_ros.surgery.tasks` each, by the same name."""

SPECIALITIES = {
    'cardiac': 'minimally invasive cardiac surgery',
    'spinal': 'spinal surgery',
    'colonoscopy': 'colonoscopy',
    'general': 'general surgery',
}


@dataclass(frozen=True)
class Traits:
    """
    What sets a procedure apart, besides its numbers in config/world.yaml.

    :param purpose: in words.
    :param task: one of TASK_KINDS.
    :param shares: of the procedure in what each speciality does.
    :param heights: of the planned waypoint above the planned surface, before and after a grasp, m.
    :param aside: how far aside of the goal the waypoint can be, before and after a grasp, m; a
        point to hover over circles the goal at this distance.
    :param rides: the waypoint moves: it rises and falls with the surface, and the time near it
        adds up over breaks.
    :param destination: least and greatest distance from the goal to where a cut ends or an object
        goes, and how far that is above the goal, m; None where nothing is cut or carried.
    :param pegs: the object is a ring, carried from one peg to another.
    :raises SettingError: if these do not fit each other.
    """

    purpose: str
    task: str
    shares: dict[str, float]
    heights: tuple[float, float] = (0.0, 0.0)
    aside: tuple[float, float] = (0.0, 0.0)
    rides: bool = False
    destination: tuple[float, float, float] | None = None
    pegs: bool = False

    def __post_init__(self) -> None:
        """Refuse a row that would leave a fact out: nothing is guessed later."""
        moves = self.task in ('incision', 'transfer')
        if self.task not in TASK_KINDS:
            raise SettingError('task', self.task, 'one of ' + ', '.join(TASK_KINDS))
        if not self.shares or not self.shares.keys() <= SPECIALITIES.keys():
            raise SettingError('shares', self.shares, 'some of ' + ', '.join(SPECIALITIES))
        if moves != (self.destination is not None):
            expected = 'three lengths' if moves else f'None, as there is none in a {self.task}'
            raise SettingError('destination', self.destination, expected)


def _distance(procedure: str, name: str, above: float = 0.0) -> tuple[float, float, float]:
    low, high = (constant(f'{procedure}.{name}_{end}') for end in ('low', 'high'))
    return low, high, above


TRAITS = {
    'reach': Traits(
        'bring the tip to a point above the organ, touch nothing, and stay',
        'hover',
        {'colonoscopy': 0.40},
        heights=(constant('reach.height'),) * 2,
    ),
    'palpation': Traits(
        'press gently on the goal until the target force holds',
        'press',
        {'spinal': 0.40, 'colonoscopy': 0.35, 'general': 0.15},
    ),
    'retraction': Traits(
        'press on the goal with a pad and hold the organ away',
        'press',
        {'spinal': 0.30, 'general': 0.40},
    ),
    'incision': Traits(
        'draw a blade along the planned line at its depth',
        'incision',
        {'cardiac': 0.25, 'spinal': 0.30},
        heights=(-constant('incision.depth'),) * 2,
        aside=(constant('incision.length_high') + 0.001,) * 2,
        destination=_distance('incision', 'length'),
    ),
    'needle_pass': Traits(
        'pick up a needle and hand it to the other instrument',
        'transfer',
        {'cardiac': 0.35, 'general': 0.20},
        heights=(constant('needle_pass.height'), constant('needle_pass.rise')),
        aside=(0.0, constant('needle_pass.way_high')),
        destination=_distance('needle_pass', 'way', constant('needle_pass.rise')),
    ),
    'peg_transfer': Traits(
        'lift a ring off one peg and put it over another',
        'transfer',
        {'general': 0.25},
        heights=(constant('peg_transfer.height'),) * 2,
        aside=(0.0, constant('peg_transfer.way_high')),
        destination=_distance('peg_transfer', 'way'),
        pegs=True,
    ),
    'follow': Traits(
        'stay with a point that circles and breathes',
        'hover',
        {'cardiac': 0.40, 'colonoscopy': 0.25},
        heights=(constant('follow.height'),) * 2,
        aside=(constant('follow.radius'),) * 2,
        rides=True,
    ),
}
"""Every procedure. States have one number for each, so a new one makes policies begin anew."""

PROCEDURE_NAMES = tuple(TRAITS)
PRESSING = tuple(name for name, traits in TRAITS.items() if traits.task == 'press')
"""The two that hold a force; the shipped federation trains them."""

SPECIALITY_SHARES = {
    speciality: {
        name: traits.shares[speciality]
        for name, traits in TRAITS.items()
        if speciality in traits.shares
    }
    for speciality in SPECIALITIES
}
"""Share of each procedure in what a speciality does. Our choice: no paper gives them."""

for _speciality, _shares in SPECIALITY_SHARES.items():
    if not math.isclose(sum(_shares.values()), 1.0):
        raise SettingError(f'shares of {_speciality}', _shares, 'a sum of 1')

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
        task = TRAITS[self.name].task
        nothing = {
            'target_force': task != 'press',
            'hold_time': task not in ('press', 'hover'),
        }
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
    if not isinstance(given, Sequence) or not all(isinstance(word, str) for word in given):
        raise SettingError('procedures', text, 'names, in one text with commas or one by one')
    words = [word.strip() for word in given if word.strip()]
    wanted: set[str] = set()
    for word in words:
        if word == 'all':
            wanted |= set(PROCEDURE_NAMES)
        elif word in SPECIALITIES:
            wanted |= SPECIALITY_SHARES[word].keys()
        elif word in PROCEDURE_NAMES:
            wanted.add(word)
        else:
            known = ', '.join(('all', *SPECIALITIES, *PROCEDURE_NAMES))
            raise SettingError('procedures', text, f'names out of {known}')
    if not wanted:
        raise SettingError('procedures', text, 'at least one procedure')
    return tuple(name for name in PROCEDURE_NAMES if name in wanted)


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
    own = [SPECIALITY_SHARES[speciality].get(name, 0.0) for name in procedures]
    total = sum(own)
    if total == 0.0:
        return (1.0 / count,) * count
    return tuple((1.0 - strength) / count + strength * share / total for share in own)
