# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Verdicts on the paper's trends: only differences beyond chance count, paired by seed.

Mortality by Student's 95 % intervals of differences, FAE, which may be infinite, by sign tests at
5 %; each stands for itself, so of twenty such words one may be chance.
"""

from collections.abc import Iterator
import math

from fdrl_ros.experiments.intervals import Interval, interval_words, paired, sign_of
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
    return [*_of_fae(summary), *_of_mortality(summary)]


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


def _of_fae(summary: Json) -> Iterator[str]:
    nobody = not_reached(summary)
    for phi in levels_of(summary):
        if phi in nobody:
            yield nobody[phi]
            continue
        waits = {
            (row['replay'], _number(row['epsilon'])): row_at(row, phi, summary)
            for row in summary['arms']
        }
        for replay, words in REPLAYS.items():
            own = {epsilon: wait for (name, epsilon), wait in waits.items() if name == replay}
            if len(own) > 1:
                yield f'survival {phi:g}, {words}: {_trend(own)}'
        for replay in list(REPLAYS)[1:]:
            both = sorted(
                each for name, each in waits if name == replay and ('poisson', each) in waits
            )
            changes: dict[str, list[str]] = {}
            for each in both:
                found = _compared(waits['poisson', each], waits[replay, each])
                changes.setdefault(found, []).append(f'{each:g}')
            if changes:
                said = '; '.join(f'{word} at {", ".join(at)}' for word, at in changes.items())
                yield f'survival {phi:g}, {REPLAYS[replay]} against no PER: {said}'


def _trend(waits: dict[float, Json]) -> str:
    """Describe how FAE depends on epsilon."""
    falling = sorted(waits, reverse=True)
    least, most = falling[-1], falling[0]
    longer, shorter, chance = _signs(waits[most], waits[least])
    if not longer + shorter:
        return f'FAE is the same at epsilon {least:g} and {most:g} in all runs'
    if chance >= LEVEL:
        return f'FAE at epsilon {least:g} and {most:g} does not differ beyond chance'
    if shorter > longer:
        return f'FAE is shorter at epsilon {least:g} than at {most:g}'
    medians = [_number(waits[each]['median']) for each in falling]
    always = all(one <= two for one, two in zip(medians, medians[1:], strict=False))
    said = f'FAE is longer at epsilon {least:g} than at {most:g} in {longer} of '
    said += f'{longer + shorter} runs that differ'
    return said + ('' if always else ', but does not fall at every step between')


def _compared(without: Json, with_it: Json) -> str:
    """Describe the effect of PER on FAE."""
    if not without['reached'] and not with_it['reached']:
        return 'not reached by either'
    slower, faster, chance = _signs(without, with_it)
    if chance >= LEVEL:
        return 'no difference beyond chance'
    return 'slower' if slower > faster else 'faster'


def _signs(one: Json, two: Json) -> tuple[int, int, float]:
    """Return how many runs wait longer in the second, how many shorter, and the chance of that."""
    pairs = [
        (_number(before), _number(after))
        for before, after in zip(one['values'], two['values'], strict=True)
    ]
    longer = sum(after > before for before, after in pairs)
    shorter = sum(after < before for before, after in pairs)
    if not longer + shorter:
        return 0, 0, 1.0
    return longer, shorter, float(stats.binomtest(longer, longer + shorter).pvalue)


def _of_mortality(summary: Json) -> Iterator[str]:
    rows = {
        _number(row['epsilon']): row['mortality']['values']
        for row in summary['arms']
        if row['replay'] == 'poisson'
    }
    falling = sorted(rows, reverse=True)
    if len(falling) < 2:
        return
    least, most = falling[-1], falling[0]
    whole = paired(rows[least], rows[most])
    said = f'mortality at epsilon {least:g} minus that at {most:g}: {_points(whole)} points'
    if not sign_of(whole):
        yield f'{said}, no change beyond chance'
        return
    if sign_of(whole) < 0:
        yield f'{said}: it falls with epsilon'
        return
    steps = [paired(rows[two], rows[one]) for one, two in zip(falling, falling[1:], strict=False)]
    sure = sum(sign_of(each) > 0 for each in steps)
    yield f'{said}: it rises as epsilon falls, beyond chance in {sure} of {len(steps)} steps'
    finite = [each for each in falling if math.isfinite(each)]
    slopes = [
        [(more - less) / (one - two) for less, more in zip(rows[one], rows[two], strict=True)]
        for one, two in zip(finite, finite[1:], strict=False)
    ]
    turns = [paired(two, one) for one, two in zip(slopes, slopes[1:], strict=False)]
    if turns:
        steeper = all((each['mean'] or 0.0) > 0.0 for each in turns)
        sure = sum(sign_of(each) > 0 for each in turns)
        word = 'ever more steeply' if steeper else 'not ever more steeply'
        yield f'{word} below epsilon {finite[0]:g}; beyond chance in {sure} of {len(turns)} turns'


def _points(found: Interval) -> str:
    return interval_words(found, '.2f', 100.0)


def _number(value: float | None) -> float:
    return math.inf if value is None else float(value)
