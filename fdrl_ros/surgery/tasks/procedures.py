# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The procedures, surgical sub-skills each under a force limit, and the specialities that use them.

What is to be done in each is in :mod:`fdrl_ros.surgery.tasks`; its numbers are in
config/world.yaml.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
import math
from typing import NamedTuple, TypeVar

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.ranges import check_number
from fdrl_ros.surgery.constants import constant

OfKind = TypeVar('OfKind')

SPECIALITIES = {
    'cardiac': 'minimally invasive cardiac surgery',
    'spinal': 'spinal surgery',
    'colonoscopy': 'colonoscopy',
    'general': 'general surgery',
}


class Lengths(NamedTuple):
    """
    Where a procedure goes, m.

    :param heights: of the planned waypoint above the planned surface, before and after a grasp.
    :param aside: greatest sideways distance from goal to waypoint, before and after a grasp.
    :param destination: least and greatest distance from the goal to where a cut ends or an object
        goes, and how far that is above the goal; None where nothing is cut or carried.
    """

    heights: tuple[float, float] = (0.0, 0.0)
    aside: tuple[float, float] = (0.0, 0.0)
    destination: tuple[float, float, float] | None = None


Numbers = Mapping[str, float]
"""What a procedure's own block of config/world.yaml says."""


def _hover(own: Numbers) -> Lengths:
    return Lengths((own['height'],) * 2, (own.get('radius', 0.0),) * 2)


def _incision(own: Numbers) -> Lengths:
    low, high = own['length_low'], own['length_high']
    return Lengths((-own['depth'],) * 2, (high + 0.001,) * 2, (low, high, 0.0))


def _transfer(own: Numbers) -> Lengths:
    low, high, rise = own['way_low'], own['way_high'], own.get('rise')
    heights = own['height'], own['height'] if rise is None else rise
    return Lengths(heights, (0.0, high), (low, high, rise or 0.0))


@dataclass(frozen=True)
class Kind:
    """
    What all procedures of one kind have in common, and what config/world.yaml must say of each.

    :param lengths: where a procedure goes, by its numbers.
    :param numbers: that each needs, besides the fields of :class:`Procedure`.
    :param circling: numbers that one with `circles` needs too; empty if none of the kind can.
    :param with_pegs: numbers that one with `pegs` needs too; empty if none of the kind can.
    :param without_pegs: numbers that one without `pegs` needs too.
    :param presses: a force is held.
    :param holds: something is held for a time.
    """

    lengths: Callable[[Numbers], Lengths]
    numbers: tuple[str, ...] = ()
    circling: tuple[str, ...] = ()
    with_pegs: tuple[str, ...] = ()
    without_pegs: tuple[str, ...] = ()
    presses: bool = False
    holds: bool = False


TASK_KINDS = {
    'hover': Kind(
        _hover,
        numbers=('height', 'position_tolerance'),
        circling=('radius', 'circle_time'),
        holds=True,
    ),
    'press': Kind(lambda own: Lengths(), presses=True, holds=True),
    'incision': Kind(
        _incision,
        numbers=(
            *('depth', 'depth_tolerance', 'depth_limit', 'line_tolerance', 'bite', 'hover'),
            *('length_low', 'length_high'),
        ),
    ),
    'transfer': Kind(
        _transfer,
        numbers=('height', 'pick_tolerance', 'place_tolerance', 'way_low', 'way_high'),
        with_pegs=('peg', 'clearance', 'play', 'spring'),
        without_pegs=('rise',),
    ),
}
"""What can be done: a class of :mod:`fdrl_ros.surgery.tasks` each, by the same name."""


@dataclass(frozen=True)
class Traits:
    """
    What sets a procedure apart, with the numbers that config/world.yaml has of it alone.

    :param name: of the procedure, and of its block of config/world.yaml.
    :param purpose: in words.
    :param task: one of TASK_KINDS.
    :param shares: of the procedure in what each speciality does.
    :param circles: the point to hover over circles the goal.
    :param rides: the waypoint moves: it rises and falls with the surface, and the time near it
        adds up over breaks.
    :param pegs: the object is a ring, carried from one peg to another.
    :param numbers: those that its kind needs, read once.
    :param heights: as aside and destination, see :class:`Lengths`.
    :raises SettingError: naming the procedure, if these do not fit each other.
    :raises ResourceError: naming the procedure, if config/world.yaml lacks a number of it.
    """

    name: str
    purpose: str
    task: str
    shares: dict[str, float]
    circles: bool = False
    rides: bool = False
    pegs: bool = False
    numbers: Numbers = field(init=False)
    heights: tuple[float, float] = field(init=False)
    aside: tuple[float, float] = field(init=False)
    destination: tuple[float, float, float] | None = field(init=False)

    def __post_init__(self) -> None:
        """Refuse a row that would leave a fact out: nothing is guessed later."""
        kind = TASK_KINDS.get(self.task)
        if kind is None:
            raise SettingError(f'{self.name}.task', self.task, 'one of ' + ', '.join(TASK_KINDS))
        if not self.shares or not self.shares.keys() <= SPECIALITIES.keys():
            expected = 'some of ' + ', '.join(SPECIALITIES)
            raise SettingError(f'{self.name}.shares', self.shares, expected)
        needed = kind.numbers
        for trait, more in (('circles', kind.circling), ('pegs', kind.with_pegs)):
            if getattr(self, trait):
                if not more:
                    expected = f'False: no {self.task} has it'
                    raise SettingError(f'{self.name}.{trait}', True, expected)
                needed += more
        if not self.pegs:
            needed += kind.without_pegs
        numbers = {number: constant(f'{self.name}.{number}') for number in needed}
        for name, value in (('numbers', numbers), *kind.lengths(numbers)._asdict().items()):
            object.__setattr__(self, name, value)


_ROWS = (
    Traits(
        'reach',
        'bring the tip to a point above the organ, touch nothing, and stay',
        'hover',
        {'colonoscopy': 0.40},
    ),
    Traits(
        'palpation',
        'press gently on the goal until the target force holds',
        'press',
        {'spinal': 0.40, 'colonoscopy': 0.35, 'general': 0.15},
    ),
    Traits(
        'retraction',
        'press on the goal with a pad and hold the organ away',
        'press',
        {'spinal': 0.30, 'general': 0.40},
    ),
    Traits(
        'incision',
        'draw a blade along the planned line at its depth',
        'incision',
        {'cardiac': 0.25, 'spinal': 0.30},
    ),
    Traits(
        'needle_pass',
        'pick up a needle and hand it to the other instrument',
        'transfer',
        {'cardiac': 0.35, 'general': 0.20},
    ),
    Traits(
        'peg_transfer',
        'lift a ring off one peg and put it over another',
        'transfer',
        {'general': 0.25},
        pegs=True,
    ),
    Traits(
        'follow',
        'stay with a point that circles and breathes',
        'hover',
        {'cardiac': 0.40, 'colonoscopy': 0.25},
        circles=True,
        rides=True,
    ),
)
TRAITS = {row.name: row for row in _ROWS}
"""Every procedure. States have one number for each, so a new one makes policies begin anew."""

PROCEDURE_NAMES = tuple(TRAITS)
if len(PROCEDURE_NAMES) != len(_ROWS):
    raise SettingError('TRAITS', [row.name for row in _ROWS], 'each procedure once')


def of_each_kind(table: Mapping[str, OfKind], place: str) -> dict[str, OfKind]:
    """
    Return what each procedure has in a table of task kinds.

    :param place: where the table is, in words.
    :raises SettingError: naming a procedure whose kind the table lacks.
    """
    for name, traits in TRAITS.items():
        if traits.task not in table:
            expected = f'a kind that {place} has: ' + ', '.join(table)
            raise SettingError(f'{name}.task', traits.task, expected)
    return {name: table[traits.task] for name, traits in TRAITS.items()}


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
        kind = TASK_KINDS[TRAITS[self.name].task]
        held = {'target_force': kind.presses, 'hold_time': kind.holds}
        for number, (low, high) in _RANGES.items():
            name, value = f'{self.name}.{number}', getattr(self, number)
            if held.get(number, True):
                check_number(name, value, low, high)
            elif value != 0.0:
                raise SettingError(name, value, f'0, as no {TRAITS[self.name].task} holds one')
        if not isinstance(self.horizon, int):
            raise SettingError(f'{self.name}.horizon', self.horizon, 'a whole number of ticks')


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
