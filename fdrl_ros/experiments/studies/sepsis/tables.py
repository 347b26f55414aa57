# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Tables of the sepsis experiments, and verdicts on the paper's trends.

Only differences beyond chance count, paired by seed: mortality by Student's 95 % intervals, FAE,
which may be infinite, by sign tests at 5 %; each stands for itself, so of twenty such verdicts
one may be chance.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
import math

from fdrl_ros.experiments.intervals import interval_words, paired, sign_of
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.studies.sepsis.settings import NETWORKS, REPLAYS, Start
from fdrl_ros.experiments.studies.sepsis.summary import most_frequent, spread
from fdrl_ros.privacy.stated import stated
from fdrl_ros.worlds.icu_sepsis.values import BANDS
import numpy as np
from rich.table import Table
from scipy import stats

NOT_REACHED = 'not reached'
KINDS = {
    'online': 'online, DP-SGD',
    'plain': 'online, Adam',
    'offline': 'offline, clinicians',
    'minibatch': 'offline, minibatches',
    'conservative': 'offline, minibatches, CQL',
    'plan': 'planning, clinicians',
}


def tables(summary: Json) -> Iterator[Table]:
    """Make every table of a summary."""
    paper = summary['paper']
    if summary['moderate']['arms']:
        yield fae_table(summary['moderate'], paper, 'of moderate SOFA')
    yield fae_table(summary, paper, 'of any SOFA')
    yield mortality_table(summary)
    if summary['per']:
        rows = [
            (
                REPLAYS[row['replay']],
                epsilon_words(row['epsilon']),
                interval_words(row['gain'], '.2f'),
            )
            for row in summary['per']
        ]
        title = 'Survival in the end with PER minus without, points, paired by seed'
        headings = ('replay', 'noise for', 'difference')
        yield make_table(title, headings, rows, caption=f'Paper: {paper["per"]}')
    if summary['bands']:
        rows = [
            (band, interval_words(summary['bands'][band], '.2f'), f'{paper["bands"][band]:+.1f}')
            for band in BANDS
        ]
        title = 'Mortality at epsilon 8 minus without privacy, points, paired by seed'
        yield make_table(title, ('SOFA', 'here', 'paper'), rows)
    yield action_table(summary)
    if summary['targets']:
        yield target_table(summary)


def fae_table(summary: Json, paper: Json, whose: str) -> Table:
    """
    Show FAE by epsilon and replay.

    :param summary: with ``phi`` and ``arms``: the whole one, or its part ``moderate``.
    :param whose: survival is waited for.
    """
    others = summary['arms'][0]['fae_at']
    notes = [f'Paper: {paper["fae"]}; {paper["per"]}', *not_reached(summary).values()]

    def cells(row: Json) -> Iterator[str]:
        found = row['fae']
        median, low, high = map(_patients, (found['median'], *found['quartiles']))
        yield REPLAYS[row['replay']]
        yield spent_words(row['epsilon_spent'])
        yield epsilon_words(row['epsilon'])
        yield f'{row["noise_multiplier"]:.2f}'
        yield NOT_REACHED if low == NOT_REACHED else f'{median} [{low}, {high}]'
        yield f'{found["reached"]} of {row["runs"]}'
        yield from (_patients(each['median']) for each in row['fae_at'].values())

    return make_table(
        f'FAE: patients {whose} until {summary["phi"]:g} of them survive, median [quartiles]',
        ('replay', 'epsilon', 'noise for', 'sigma_m', 'FAE', 'reached')
        + tuple(f'FAE at {phi}' for phi in others),
        [tuple(cells(row)) for row in summary['arms']],
        caption='. '.join(notes),
        numbers='right',
    )


def mortality_table(summary: Json) -> Table:
    """Show estimated mortality in the end, by epsilon and band."""
    rows = []
    for name, each in summary['references'].items():
        values = [each['survival'], *(each['by_band'][band] for band in BANDS)]
        rows.append([name, '', *(f'{100.0 * (1.0 - value):.2f}' for value in values)])
    for row in summary['arms']:
        cells = [row['mortality'], *(row['mortality_by_band'][band] for band in BANDS)]
        name = f'{REPLAYS[row["replay"]]}, noise for {epsilon_words(row["epsilon"])}'
        spent = spent_words(row['epsilon_spent'])
        rows.append([name, spent, *(interval_words(each, '.2f', 100.0) for each in cells)])
    return make_table(
        'Estimated mortality in the end, exact, in %: mean [95 % interval over runs]',
        ('policy', 'epsilon', 'all', *BANDS),
        rows,
        caption=f'Paper: {summary["paper"]["mortality"]}',
        numbers='right',
    )


def action_table(summary: Json) -> Table:
    """Show the share of steps with each level of vasopressor and of fluid."""
    rows = []
    for name, bands in summary['heat_maps'].items():
        for band in BANDS:
            peak = summary['paper']['peaks'][name].get(band)
            levels = (level_words(bands[band][drug]) for drug in ('vasopressor', 'fluid'))
            most = pair_words(most_frequent(bands[band]))
            rows.append((name, band, *levels, most, pair_words(peak) if peak else 'not told'))
    return make_table(
        'Levels 0 to 4 of vasopressor and of fluid, % of steps: mean ± 95 % interval over runs; '
        'most frequent (vasopressor, fluid)',
        ('policy', 'SOFA', 'vasopressor', 'fluid', 'most', 'paper'),
        rows,
        caption=f'Paper: {summary["paper"]["actions"]}; it tells no shares',
    )


def level_words(found: Json) -> str:
    """Write the share of each level in percent, with its spread: tenths where it is small."""
    means, half_widths = 100.0 * np.array(found['mean']), spread(found)
    if half_widths is None:
        return '  '.join(f'{mean:.0f}' for mean in means)
    words = []
    for mean, half in zip(means, 100.0 * half_widths, strict=True):
        form = '.1f' if 0.0 < half < 0.95 else '.0f'
        words.append(f'{mean:.0f}±{half:{form}}')
    return '  '.join(words)


def pair_words(pair: Sequence[int]) -> str:
    """Write levels of vasopressor and fluid as the paper does."""
    return f'({pair[0]}, {pair[1]})'


def target_table(summary: Json) -> Table:
    """Show what each way to learn reaches, and adds to what was publicly known."""
    rows = []
    for row in summary['targets']:
        learning = (KINDS[row['kind']], NETWORKS[row['network']])
        names = (*learning, Start(**row['public']).name, epsilon_words(row['epsilon']))
        counts = (row['patients'] or '', row['runs'], f'{row["start"]["mean"]:.4f}')
        found = (interval_words(row[name], '.4f') for name in ('final', 'averaged', 'final_gain'))
        rows.append((*names, *counts, *found))
    return make_table(
        'Exact survival: mean [95 % interval over seeds]; gains are paired differences from the '
        'public start',
        ('learning', 'network', 'public start', 'epsilon', 'patients', 'n', 'start')
        + ('final', 'averaged', 'gain of the final'),
        rows,
    )


def _patients(value: float | None) -> str:
    return NOT_REACHED if value is None else f'{value:.0f}'


def epsilon_words(value: float | None) -> str:
    """Write an epsilon that was aimed at; without one nothing is private."""
    return 'inf' if value is None else f'{value:g}'


def spent_words(value: float | None) -> str:
    """Write an epsilon that was spent, rounded up; without one nothing is private."""
    return 'inf' if value is None else stated(value)


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
    moderate = summary['moderate']
    found = (
        [f'moderate SOFA: {said}' for said in fae_verdicts(moderate)] if moderate['arms'] else []
    )
    return [*found, *fae_verdicts(summary), *_of_mortality(summary)]


def fae_verdicts(summary: Json) -> list[str]:
    """Return a verdict on FAE for each survival that it is told for."""
    missed = not_reached(summary)
    found: list[str] = []
    for phi in levels_of(summary):
        found += [missed[phi]] if phi in missed else _of_fae(summary, phi)
    return found


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
            falls = verdict == 'longer' and medians != sorted(medians)
            yield (
                f'survival {phi:g}, {name}: FAE at epsilon {least:g} against {most:g}: {verdict} '
                f'(longer in {longer}, shorter in {shorter} runs)'
                + (', but its median falls at some step between' if falls else '')
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
