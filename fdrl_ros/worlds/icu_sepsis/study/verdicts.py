# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Verdicts on the paper's trends: only differences beyond chance count, paired by seed.

Mortality by Student's 95 % intervals of differences, FAE, which may be infinite, by sign tests at
5 %; each stands for itself, so of twenty such verdicts one may be chance.
"""

from collections.abc import Iterator
from itertools import pairwise
import math

from fdrl_ros.experiments.intervals import interval_words, paired, sign_of
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.worlds.icu_sepsis.study.settings import REPLAYS
from scipy import stats

FEWEST_RUNS = 6
"""With fewer no sign test can reach 5 %, however clear the runs are."""
LEVEL = 0.05


def verdicts(summary: Json) -> list[str]:
    """Return a verdict on each of the paper's trends; none from too few runs."""
    runs = min(row['runs'] for row in summary['arms'])
    if runs < FEWEST_RUNS:
        return [
            f'{runs} runs of each setting are too few to say what depends on epsilon or on PER: '
            f'it takes {FEWEST_RUNS} at least'
        ]
    missed = not_reached(summary)
    found: list[str] = []
    for phi in levels_of(summary):
        found += [missed[phi]] if phi in missed else _of_fae(summary, phi)
    return [*found, *_of_mortality(summary)]


def not_reached(summary: Json) -> dict[float, str]:
    """Describe how near the best run came to each survival that none reached."""
    best = max(max(row['highest']) for row in summary['arms'])
    longest = max(max(row['patients']) for row in summary['arms'])
    return {
        phi: f'survival {phi:g} is reached by no run: the best one had {best:.4f} at most, within '
        f'{longest:,} patients'
        for phi in levels_of(summary)
        if not any(row_at(row, phi, summary)['reached'] for row in summary['arms'])
    }


def levels_of(summary: Json) -> list[float]:
    """Return every survival that FAE is reported for, in rising order."""
    return sorted({summary['phi'], *(float(name) for name in summary['arms'][0]['fae_at'])})


def row_at(row: Json, phi: float, summary: Json) -> Json:
    """Return FAE of an arm for one of those survivals."""
    found: Json = row['fae'] if phi == summary['phi'] else row['fae_at'][f'{phi:g}']
    return found


def _of_fae(summary: Json, phi: float) -> Iterator[str]:
    """Compare FAE at the least and the greatest epsilon, and with PER against without."""
    without: dict[float, Json] = {}
    for replay, name in REPLAYS.items():
        own = {
            epsilon: row_at(row, phi, summary)
            for epsilon, row in _by_epsilon(summary, replay).items()
        }
        rising = sorted(own)
        if len(own) > 1:
            least, *_, most = rising
            verdict, longer, shorter = _compare_waits(own[most], own[least])
            medians = [_number(own[epsilon]['median']) for epsilon in reversed(rising)]
            always = '' if medians == sorted(medians) else 'not '
            yield (
                f'survival {phi:g}, {name}: FAE at epsilon {least:g} against {most:g}: {verdict} '
                f'(longer in {longer}, shorter in {shorter} runs), its median {always}growing at '
                'every step'
            )
        if replay == 'poisson':
            without = own
            continue
        both = ', '.join(
            f'{e:g} {_compare_waits(without[e], own[e])[0]}' for e in rising if e in without
        )
        if both:
            yield f'survival {phi:g}, FAE with {name} against no PER, by epsilon: {both}'


def _compare_waits(one: Json, two: Json) -> tuple[str, int, int]:
    """Return by a sign test how the second FAE differs, and how many runs are longer, shorter."""
    changes = [_number(b) - _number(a) for a, b in zip(one['values'], two['values'], strict=True)]
    longer, shorter = sum(c > 0.0 for c in changes), sum(c < 0.0 for c in changes)
    if not one['reached'] and not two['reached']:
        return 'not reached by either', longer, shorter
    if not longer + shorter or stats.binomtest(longer, longer + shorter).pvalue >= LEVEL:
        return 'no difference', longer, shorter
    return ('longer' if longer > shorter else 'shorter'), longer, shorter


def _of_mortality(summary: Json) -> Iterator[str]:
    """Tell how mortality without PER depends on epsilon, by paired differences."""
    rows = _by_epsilon(summary, 'poisson')
    values = {e: rows[e]['mortality']['values'] for e in sorted(rows, reverse=True)}
    if len(values) < 2:
        return
    most, *_, least = values
    whole = paired(values[least], values[most])
    trend = {1: 'it rises as epsilon falls', -1: 'it falls with epsilon'}
    said = trend.get(sign_of(whole), 'no change beyond chance')
    if sign_of(whole) > 0:
        steps = [sign_of(paired(values[two], values[one])) > 0 for one, two in pairwise(values)]
        said += f', beyond chance in {sum(steps)} of {len(steps)} steps'
        slopes = [
            [
                (more - less) / (one - two)
                for less, more in zip(values[one], values[two], strict=True)
            ]
            for one, two in pairwise(values)
            if math.isfinite(one)
        ]
        turns = [paired(two, one) for one, two in pairwise(slopes)]
        if turns:
            steeper = all((turn['mean'] or 0.0) > 0.0 for turn in turns)
            sure = sum(sign_of(turn) > 0 for turn in turns)
            said += f', {"" if steeper else "not "}ever more steeply, beyond chance in {sure} of '
            said += f'{len(turns)} turns'
    points = interval_words(whole, '.2f', 100.0)
    yield f'mortality at epsilon {least:g} minus that at {most:g}: {points} points: {said}'


def _by_epsilon(summary: Json, replay: str) -> dict[float, Json]:
    """Return the arms with a replay by their epsilon."""
    arms = (row for row in summary['arms'] if row['replay'] == replay)
    return {_number(row['epsilon']): row for row in arms}


def _number(value: float | None) -> float:
    return math.inf if value is None else float(value)
