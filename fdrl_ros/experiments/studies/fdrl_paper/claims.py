# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the FDRL paper claims, what came out here, and the verdict, by rules that are fixed here.

- A claimed change: *reproduced* if its whole interval (95 %) is beyond half of what is claimed;
  else *partly* if it has the claimed sign beyond chance; else *not measurable* if the interval
  holds half of the claim, or a ratio has a denominator that cannot be told from 0; else *not
  reproduced*.
- A claimed margin, level or trend: *reproduced* or *not reproduced* if the whole interval lies on
  one side of it; else *not measurable*.

A claim is tested in the paper's own setting (``own``), and under other readings of it.
"""

from collections.abc import Callable, Iterator, Sequence
import math
from typing import NamedTuple

from fdrl_ros.experiments.intervals import (
    Interval,
    interval,
    interval_words,
    paired,
    percent_change,
    sign_of,
)
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings, TEMPERATURE
from fdrl_ros.experiments.studies.leakage.settings import PAPER
from fdrl_ros.experiments.studies.leakage.study import RULED
from fdrl_ros.experiments.studies.leakage.summary import EPSILONS
from fdrl_ros.privacy.accountant.accountant import epsilon_paper, PAPER_ORDER
from fdrl_ros.privacy.stated import stated

REPRODUCED, PARTLY, NOT = 'reproduced', 'partly', 'not reproduced'
UNMEASURABLE, UNMEASURED = 'not measurable', 'not measured'

ENOUGH = 0.5
"""Share of a claimed change that counts as reproduced."""


class Claim(NamedTuple):
    """
    One claim of the paper under one reading of it.

    ``where`` it stands in the paper, what it ``claimed``, in which ``setting`` it was tested, what
    was ``found``, the ``verdict``, and ``why``. ``own``: whether the setting is the paper's.
    """

    where: str
    claimed: str
    setting: str
    found: str
    verdict: str
    why: str
    own: bool = True


def of_change(found: Interval | None, claimed: float) -> str:
    """
    Return the verdict on a claimed change.

    :param found: the change, in the unit of ``claimed``; None if a ratio means nothing.
    """
    if found is None or found['low'] is None or found['high'] is None:
        return UNMEASURABLE
    low, high = sorted((found['low'] / claimed, found['high'] / claimed))  # shares of the claim
    if low >= ENOUGH:
        return REPRODUCED
    if high < ENOUGH:
        return NOT if low <= 0.0 or high <= 0.0 else PARTLY
    return PARTLY if low > 0.0 else UNMEASURABLE


def of_margin(difference: Interval, margin: float) -> str:
    """Return the verdict on a difference that is claimed to lie within a margin."""
    return _one_side(
        difference,
        lambda low, high: (-margin <= low and high <= margin, high < -margin or low > margin),
    )


def of_level(found: Interval, least: float) -> str:
    """Return the verdict on a number that is claimed to be at least something."""
    return _one_side(found, lambda low, high: (low >= least, high < least))


def of_trend(difference: Interval | None, sign: int) -> str:
    """Return the verdict on a number that is claimed to rise (1) or to fall (-1)."""
    if difference is None:
        return UNMEASURABLE
    return {sign: REPRODUCED, -sign: NOT}.get(sign_of(difference), UNMEASURABLE)


def _one_side(found: Interval, test: Callable[[float, float], tuple[bool, bool]]) -> str:
    if found['low'] is None or found['high'] is None:
        return UNMEASURABLE
    holds, fails = test(found['low'], found['high'])
    return REPRODUCED if holds else NOT if fails else UNMEASURABLE


_MOST_POWER = {'local': 1.25, 'adding': 1.25, 'decrypting': 0.25}
"""Largest b of seconds ~ size^b that is consistent with the claim."""

BASELINES = {
    'central_paper': "the paper's baseline: 15 epochs, s = 0.1",
    'central_steps': 'a baseline of as many steps, same s',
    'central_epsilon': 'a baseline of as many steps, same epsilon',
}

OWN = 'central_paper'
"""The baseline of the paper."""

_SHORT = 'the baseline takes 16 times fewer steps, so this compares lengths of training'


def claims(summary: Json, settings: FdrlSettings) -> Iterator[Claim]:
    """
    Yield every claim with its verdict.

    :param summary: all of the study, as :func:`summary.summarise` sums it up.
    """
    yield from _leakage(summary)
    yield from _accuracy(summary, settings)
    yield from _severe(summary, settings)
    yield from _risk(summary, settings)
    yield from _effectiveness(summary)
    yield from _divergence(summary, settings)
    yield from _trends(summary, settings)
    yield from _ablation(summary, settings)
    yield from _costs(summary)
    yield from _budget(summary)


def _leakage(summary: Json) -> Iterator[Claim]:
    why = {
        'matched': 'as many steps on both sides, no noise',
        'memorising': 'a regime made to leak: 10 records a hospital, no clipping',
        'private': 'as memorising, with noise for epsilon 8',
    }
    for name, each in summary['leakage']['regimes'].items():
        others = ', '.join(
            f'{_percent(_leak_change(each, "released", attack), "+.0f")} by {attack}'
            for attack in ('loss', 'lira loss')
        )
        reason = why.get(name, f'{_SHORT}; the ratio is of two numbers near 0')
        for seat, words in (('released', 'released policy'), ('own', "hospitals' own updates")):
            change = _leak_change(each, seat, RULED)
            yield Claim(
                'abstract, Fig. 3a, 5, 7' if seat == 'released' else 'Eq. 16',
                'PLR 60 % lower than centralised',
                f'regime {name}, {words}',
                _percent(change, '+.0f'),
                of_change(change, -60.0),
                f'{reason}; {others}'
                if seat == 'released'
                else 'W_i read as weights before the sum',
                name == PAPER and seat == 'released',
            )


def _leak_change(regime: Json, seat: str, attack: str) -> Interval | None:
    """Return the change of PLR from the released centralised policy, in percent."""
    seats = regime['seats']
    return percent_change(*(_values(seats[each][attack]['plr']) for each in (seat, 'central')))


def _percent(change: Interval | None, form: str) -> str:
    return 'no ratio' if change is None else f'{interval_words(change, form)} %'


def worth(summary: Json, level: float, noise: float, policy: str, name: str) -> Interval:
    """Return what a policy of the grid is worth in one measure."""
    found: Interval = summary['grid'][f'{level:g}'][f'{noise:g}']['worth'][policy][name]
    return found


def _values(found: Interval) -> list[float]:
    return [float(each) for each in found['values'] if each is not None]


def _accuracy(summary: Json, settings: FdrlSettings) -> Iterator[Claim]:
    level, noise = settings.heterogeneity, settings.noise
    federated = _values(worth(summary, level, noise, 'federated', 'a_task'))
    for name, words in BASELINES.items():
        central = _values(worth(summary, level, noise, name, 'a_task'))
        points = [100.0 * (a - b) for a, b in zip(federated, central, strict=True)]
        difference = interval(points)
        yield Claim(
            'abstract, Fig. 5',
            'A_task within 1.5 points of centralised',
            f'H = {level:g}, s = {noise:g}, against {words}',
            f'{interval_words(difference, "+.1f")} points',
            of_margin(difference, 1.5),
            _SHORT if name == OWN else 'exact A_task over all states',
            name == OWN,
        )


def _severe(summary: Json, settings: FdrlSettings) -> Iterator[Claim]:
    for level, least, where in ((0.8, 0.91, 'section IV'), (1.0, 0.92, 'section II-B')):
        claimed = f'A_task of {100 * least:.0f} % under strong heterogeneity'
        setting = f'H = {level:g}, s = {settings.noise:g}'
        if f'{level:g}' not in summary['grid']:
            yield Claim(where, claimed, setting, '', UNMEASURED, 'this H was left out')
            continue
        found = worth(summary, level, settings.noise, 'federated', 'a_task')
        share = worth(summary, level, settings.noise, 'federated', 'share')
        ceiling = worth(summary, level, settings.noise, 'majority', 'a_task')
        start = worth(summary, level, settings.noise, 'public_start', 'a_task')
        yield Claim(
            where,
            claimed,
            setting,
            f'{interval_words(found, factor=100.0)} %, '
            f'{interval_words(share, ".0f", 100.0)} % of the ceiling',
            of_level(found, least),
            f'no single policy can exceed {interval_words(ceiling, factor=100.0)} %; the expert '
            f'of the mean hospital, which saw no patient, has '
            f'{interval_words(start, factor=100.0)} %; the paper states both 91 and 92 %',
        )


def _risk(summary: Json, settings: FdrlSettings) -> Iterator[Claim]:
    level, noise = settings.heterogeneity, settings.noise
    federated = _values(worth(summary, level, noise, 'federated', 'r_mit'))
    idle = worth(summary, level, noise, 'stabilise', 'r_mit')
    expert = worth(summary, level, noise, 'expert', 'r_mit')
    for name, words in BASELINES.items():
        central = _values(worth(summary, level, noise, name, 'r_mit'))
        change = percent_change(federated, central)
        yield Claim(
            'Fig. 5, 7',
            'R_mit 15.2 % higher than centralised',
            f'H = {level:g}, s = {noise:g}, against {words}',
            _percent(change, '+.1f'),
            of_change(change, 15.2),
            f'R_mit rewards leaving the operation alone: always stabilising has '
            f'{interval_words(idle, ".3f")}, the expert {interval_words(expert, ".3f")}',
            name == OWN,
        )


def _effectiveness(summary: Json) -> Iterator[Claim]:
    tau = f'{TEMPERATURE:g}'
    for name in ('paper', 'matched'):
        regime = summary['leakage']['regimes'].get(name)
        if regime is None:
            continue
        for which, said in EPSILONS.items():
            change = regime['effectiveness'][tau][which]['change_percent']
            yield Claim(
                'Fig. 3c, 5, 7',
                'OPE 25.8 % higher than centralised',
                f'regime {name}, tau = {tau}, {said}',
                f'{interval_words(change, "+.0f")} %',
                of_change(change, 25.8),
                'D_KL has no upper bound and moves OPE by any amount with tau, which the paper '
                'does not state',
                name == PAPER and which == 'epsilon_s',
            )


def _divergence(summary: Json, settings: FdrlSettings) -> Iterator[Claim]:
    tau = f'{TEMPERATURE:g}'
    at = summary['grid'][f'{settings.heterogeneity:g}'][f'{settings.noise:g}']['divergence'][tau]
    federated = _values(at['federated'])
    for name in ('central_paper', 'central_steps'):
        change = percent_change(federated, _values(at[name]))
        found = _percent(change, '+.0f')
        setting = f'tau = {tau}, against {BASELINES[name]}'
        yield Claim(
            'Fig. 7',
            'D_KL 50 % lower than centralised',
            setting,
            found,
            of_change(change, -50.0),
            'Fig. 7 and 3b contradict each other; D_KL bounds no leak',
            name == OWN,
        )
        yield Claim(
            'Fig. 3b, section III-B',
            'D_KL higher than centralised, so more private',
            setting,
            found,
            of_trend(change, 1),
            'Fig. 7 and 3b contradict each other; D_KL bounds no leak',
            name == OWN,
        )


def _ends(summary: Json, settings: FdrlSettings) -> tuple[str, str, str, str]:
    levels = [f'{each:g}' for each in settings.all_levels]
    noises = [f'{each:g}' for each in settings.all_noises if each]
    return levels[0], levels[-1], noises[0], noises[-1]


def _mean_over(rows: Sequence[Interval]) -> list[float]:
    """Return the mean of several numbers, seed by seed."""
    columns = zip(*map(_values, rows), strict=True)
    return [math.fsum(each) / len(each) for each in columns]


def _trends(summary: Json, settings: FdrlSettings) -> Iterator[Claim]:
    low, high, quiet, loud = _ends(summary, settings)
    levels = [f'{each:g}' for each in settings.all_levels]
    noises = [f'{each:g}' for each in settings.all_noises if each]

    def accuracy(level: str, noise: str) -> Interval:
        return worth(summary, float(level), float(noise), 'federated', 'a_task')

    by_noise = paired(
        _mean_over([accuracy(each, loud) for each in levels]),
        _mean_over([accuracy(each, quiet) for each in levels]),
    )
    by_level = paired(
        _mean_over([accuracy(high, each) for each in noises]),
        _mean_over([accuracy(low, each) for each in noises]),
    )
    harm = [
        [
            a - b
            for a, b in zip(_values(accuracy(x, loud)), _values(accuracy(x, quiet)), strict=True)
        ]
        for x in (high, low)
    ]
    both = paired(*harm)
    rows = (
        (
            'Fig. 4, 6',
            'A_task falls as s grows',
            f's = {loud} against {quiet}',
            by_noise,
            'mean over H',
        ),
        (
            'Fig. 6',
            'A_task falls as H grows',
            f'H = {high} against {low}',
            by_level,
            'mean over s',
        ),
        (
            'Fig. 6',
            's harms more where H is large',
            f'the fall from s = {quiet} to {loud} at H = {high} against {low}',
            both,
            'a difference of differences',
        ),
    )
    for where, claimed, setting, found, why in rows:
        words = f'{interval_words(found, "+.1f", 100.0)} points'
        yield Claim(where, claimed, setting, words, of_trend(found, -1), why)
    yield _private_trend(summary, quiet, loud)


def _private_trend(summary: Json, quiet: str, loud: str) -> Claim:
    """Return the claim that s lowers the leak: the mean over H of PLR, paired by seed."""
    surface = summary['surface']
    noises = [f'{each:g}' for each in surface['noises']]
    at = {
        each: _mean_over([row[noises.index(each)]['plr'] for row in surface['rows']])
        for each in (quiet, loud)
    }
    difference = paired(at[loud], at[quiet])
    return Claim(
        'Fig. 4',
        'privacy effectiveness rises as s grows',
        f'PLR at s = {loud} against {quiet}, the mean over H',
        f'{interval_words(difference, "+.4f")} bits',
        of_trend(difference, -1),
        'epsilon falls with s by construction; PLR of the released policy is small everywhere',
    )


def _ablation(summary: Json, settings: FdrlSettings) -> Iterator[Claim]:
    regimes = summary['leakage']['regimes']

    def plr(regime: str, seat: str) -> list[float]:
        return _values(regimes[regime]['seats'][seat][RULED]['plr'])

    noise = f's = {settings.noise:g} against none'
    for setting, change, why, own in (
        (
            f'both: aggregate with s = {settings.noise:g} against own updates without noise',
            percent_change(plr(PAPER, 'aggregate'), plr('matched', 'own')),
            'clipping on both sides',
            True,
        ),
        (
            f'differential privacy alone: {noise}, released policy',
            percent_change(plr(PAPER, 'released'), plr('matched', 'released')),
            'clipping on both sides',
            False,
        ),
        (
            'masks and encryption alone: aggregate against own updates, no noise',
            percent_change(plr('matched', 'aggregate'), plr('matched', 'own')),
            'encryption changes no released policy; it hides whose update was what',
            False,
        ),
    ):
        yield Claim(
            'section IV-B',
            'DP and HE lower PLR by 60 %',
            setting,
            _percent(change, '+.0f'),
            of_change(change, -60.0),
            why,
            own,
        )
    claimed, setting = 'DP and HE cost 1.5 points of accuracy', f'differential privacy: {noise}'
    if 0.0 not in settings.all_noises:
        yield Claim('section IV-B', claimed, setting, '', UNMEASURED, 's = 0 was left out')
        return
    level = settings.heterogeneity
    noisy, plain = (
        [100.0 * each for each in _values(worth(summary, level, s, 'federated', 'a_task'))]
        for s in (settings.noise, 0.0)
    )
    points = paired(noisy, plain)
    yield Claim(
        'section IV-B',
        claimed,
        setting,
        f'{interval_words(points, "+.1f")} points',
        of_margin(points, 1.5),
        'encryption costs none: sums are exact',
    )


def _costs(summary: Json) -> Iterator[Claim]:
    cost = summary['cost']
    for claimed, work, what, why in (
        (
            'local training costs O(E n)',
            'local',
            'records',
            'one epoch with noise; E is not varied',
        ),
        (
            'aggregation costs O(N log N)',
            'adding',
            'hospitals',
            'adding ciphertexts is linear, so less than what is claimed',
        ),
        (
            'decryption costs O(log N)',
            'decrypting',
            'hospitals',
            'one sum is decrypted, whoever adds to it, so less than what is claimed',
        ),
    ):
        least, *_, most = cost[work]
        power = cost['powers'][work]
        yield Claim(
            'section II-B',
            claimed,
            f'{least} to {most} {what}, one scheme, processor time on this machine',
            f'grows as {what}^{power:.2f}',
            REPRODUCED if power < _MOST_POWER[work] else NOT,
            why,
        )
    hospitals, *_ = cost['adding']
    seconds = cost['round']['median']
    yield Claim(
        'section IV-B',
        'encryption and decryption take 0.7 s a round',
        f'{hospitals} hospitals, all parties, 4,804 weights, processor time on this machine',
        f'{seconds:.3f} s',
        UNMEASURABLE,
        'not comparable: another machine and scheme (BFV), and the paper states a latency',
    )


def _budget(summary: Json) -> Iterator[Claim]:
    regime = summary['leakage']['regimes'][PAPER]
    spent = regime['bounds']['federated']
    yield Claim(
        'section IV-B',
        'epsilon = 1 by alpha / (2 sigma^2)',
        f's = {spent["s"]:g}, clipping at 0.4, {spent["steps"]} steps',
        f'epsilon {stated(spent["epsilon"])} at delta {spent["delta"]:g}; the formula gives '
        f'{epsilon_paper(PAPER_ORDER, spent["s"]):.3g} with sigma = s and '
        f'{spent["epsilon_paper"]:.2g} with sigma = sigma_m',
        NOT if spent['epsilon'] > 1.0 else REPRODUCED,
        'the formula is of one step without sampling, composition and clipping',
    )
