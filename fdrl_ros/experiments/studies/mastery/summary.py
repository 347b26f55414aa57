# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What ``mastery.json`` holds: intervals over seeds, paired differences, endpoints in their order.

One seed is one unit: intervals are Student's over seeds, of means over hospitals.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.intervals import (
    Interval,
    interval,
    over_seeds,
    paired,
    SHARE,
    UNBOUNDED,
)
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.mastery.evaluation import MEASURES
from fdrl_ros.experiments.studies.mastery.settings import Cell

FEDERATED = 'federated'

ENDPOINTS = (
    ('alone', 0.0),
    ('public_start', 0.0),
    ('global', 0.0),
    ('pooled_at_home', -0.02),
    ('pooled', -0.02),
)
"""
What federated minus another row must lie above, with its whole interval; tested in this order, at
H = 0.5 and then at H = 1, until one is not met. The first one is primary.
"""

Part = Json
"""What :func:`fdrl_ros.experiments.studies.mastery.study.measure` found."""

Measured = Sequence[tuple[tuple[Cell, int], Part]]
"""Cell and seed of each part."""


def summarise(measured: Measured, sparse: Sequence[tuple[Cell, Json]], plan: Plan) -> Json:
    """
    Sum up over seeds.

    :param sparse: cell and result of each part where only the end is rewarded.
    """
    cells: dict[Cell, tuple[list[int], list[Part]]] = {}
    for (cell, seed), part in measured:
        seeds, parts = cells.setdefault(cell, ([], []))
        seeds.append(seed)
        parts.append(part)
    found: Json = {'delta': plan.privacy.delta, 'unit': plan.privacy.unit, 'levels': {}}
    going = True
    for cell, (seeds, parts) in cells.items():
        if cell.default:
            tested = endpoints(parts, going)
            going = tested[-1]['met']
            own = [each['found'] for other, each in sparse if other == cell]
            found['levels'][f'{cell.heterogeneity:g}'] = {
                **of_cell(seeds, parts),
                **of_default(parts),
                'endpoints': tested,
                'sparse': _over(own),
            }
    found['cells'] = [
        {**cell._asdict(), **of_cell(seeds, parts)} for cell, (seeds, parts) in cells.items()
    ]
    return found


def of_cell(seeds: Sequence[int], parts: Sequence[Part]) -> Json:
    """Return what every cell has: home, away, epsilon and paired differences."""
    rows = [name for name in parts[0]['home'] if name not in ('expert', FEDERATED)]
    return {
        'seeds': list(seeds),
        'epsilon': {
            name: max(part['epsilon'][name] for part in _having(parts, name, 'epsilon'))
            for name in parts[0]['epsilon']
        },
        'home': {
            name: interval([at_home(part, name) for part in _having(parts, name)], SHARE)
            for name in parts[0]['home']
        },
        'away': {
            name: interval([away(part, name) for part in _having(parts, name, 'away')], SHARE)
            for name in parts[0]['away']
        },
        # The expert operates on fewer patients.
        'paired': {name: difference(parts, name) for name in rows},
        'paired_away': {
            name: difference(parts, name, away) for name in parts[0]['away'] if name != FEDERATED
        },
        'chosen': {
            name: dict(Counter(each for part in parts for each in part['chosen'][name].values()))
            for name in parts[0]['chosen']
        },
    }


def at_home(part: Part, name: str, measure: str = 'success') -> float:
    """Return a row's mean over hospitals on their own patients."""
    values = [each[measure] for each in part['home'][name].values()]
    return float(sum(values) / len(values))


def away(part: Part, name: str) -> float:
    """Return a row's success on the patients of hospitals that nobody learned from."""
    return float(part['away'][name]['success'])


def difference(
    parts: Sequence[Part], name: str, success: Callable[[Part, str], float] = at_home
) -> Interval:
    """Return federated minus a row, of the seeds that the row was measured with."""
    own = _having(parts, name)
    return paired(*([success(part, each) for part in own] for each in (FEDERATED, name)))


def endpoints(parts: Sequence[Part], going: bool = True) -> list[Json]:
    """
    Test the endpoints in their order; after one that is not met, none is.

    :param going: whether all that were tested before were met.
    """
    rows = []
    for other, bound in ENDPOINTS:
        found = difference(parts, other)
        above = found['low'] is not None and found['low'] > bound
        rows.append({'minus': other, 'above': bound, **found, 'tested': going})
        going = rows[-1]['met'] = going and above
    return rows


def of_default(parts: Sequence[Part]) -> Json:
    """Return what default cells have besides."""
    rows, robust = parts[0]['home'], [part['robust'] for part in parts if 'robust' in part]
    return {
        'procedures': {
            done: {name: by_procedure(_having(parts, name), name, done) for name in rows}
            for done in _procedures(parts)
        },
        'hospitals': {
            hospital: {
                name: _measure(_having(parts, name), name, hospital, 'success') for name in rows
            }
            for hospital in rows[FEDERATED]
        },
        'measures': {
            measure: {
                name: interval([at_home(part, name, measure) for part in _having(parts, name)])
                for name in rows
            }
            for measure in MEASURES[1:]
        },
        'with_motors': _over([part['with_motors'] for part in parts]),
        'robust': _over(robust),
        'selector': {
            place: selector_of([part['selector'][place] for part in parts])
            for place in ('home', 'away')
        },
        'ceiling': {
            'home': paired([at_home(part, FEDERATED) for part in parts], _ceiling(parts)),
            'procedures': {
                done: interval(
                    [
                        _minus(share(part, FEDERATED, done), share(part, 'ceiling', done))
                        for part in parts
                    ]
                )
                for done in _procedures(parts)
            },
        },
    }


def selector_of(found: Sequence[Json]) -> Json:
    """
    Return what the selector is worth at home or away.

    :param found: of each seed.
    :returns: rows and shares over seeds; ``lead``: return, success and risk of the selector minus
        those of each other row, paired; ``risk_saved``: by how much its risk is below the row's.
    """
    own = [each['rows']['selector'] for each in found]
    others = {
        name: [each['rows'][name] for each in found]
        for name in found[0]['rows']
        if name != 'selector'
    }
    rest = ({name: part for name, part in each.items() if name != 'rows'} for each in found)
    return {
        'rows': over_seeds([each['rows'] for each in found]),
        'lead': {
            name: {
                what: paired([each[what] for each in own], [each[what] for each in rows])
                for what in own[0]
            }
            for name, rows in others.items()
        },
        'risk_saved': {
            name: interval(
                [
                    1.0 - one['risk'] / other['risk'] if other['risk'] > 0.0 else None
                    for one, other in zip(own, rows, strict=True)
                ]
            )
            for name, rows in others.items()
        },
        **over_seeds(list(rest)),
    }


def share(part: Part, name: str, procedure: str) -> float | None:
    """Return a row's success in a procedure over all hospitals' patients; None without one."""
    counts = [each['procedures'].get(procedure, (0, 0)) for each in part['home'][name].values()]
    done, good = (sum(column) for column in zip(*counts, strict=True))
    return good / done if done else None


def by_procedure(parts: Sequence[Part], name: str, procedure: str) -> Interval:
    """Return a row's success in a procedure over seeds."""
    return interval([share(part, name, procedure) for part in parts], SHARE)


def _having(parts: Sequence[Part], name: str, where: str = 'home') -> list[Part]:
    """Return the parts that a row was measured in; what is slow is measured with few seeds."""
    return [part for part in parts if name in part[where]]


def _ceiling(parts: Sequence[Part]) -> list[float]:
    return [at_home(part, 'ceiling') for part in parts]


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _measure(parts: Sequence[Part], name: str, hospital: str, measure: str) -> Interval:
    values = [part['home'][name][hospital][measure] for part in parts]
    return interval(values, SHARE if measure == 'success' else UNBOUNDED)


def _procedures(parts: Sequence[Part]) -> list[str]:
    return sorted(
        {
            done
            for part in parts
            for each in part['home'][FEDERATED].values()
            for done in each['procedures']
        }
    )


def _over(rows: Sequence[Json]) -> Json:
    """Return the interval over seeds of each share, however deep it is."""
    if not rows:
        return {}
    found: Json = {}
    for name, first in rows[0].items():
        column = [row[name] for row in rows if name in row]
        found[name] = _over(column) if isinstance(first, Mapping) else interval(column, SHARE)
    return found
