# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is said of the sepsis results: nothing of chance, spreads everywhere, the paper beside."""

import json
from pathlib import Path

from fdrl_ros.experiments.studies.sepsis.plot import (
    draw_actions,
    draw_fae,
    draw_mortality,
    draw_overall,
)
from fdrl_ros.experiments.studies.sepsis.summary import heat_map, most_frequent, spread
from fdrl_ros.experiments.studies.sepsis.tables import (
    fae_table,
    FEWEST_RUNS,
    level_words,
    not_reached,
    verdicts,
)
from fdrl_ros.worlds.icu_sepsis.values import BANDS
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
import numpy as np
import pytest
from rich.console import Console

FOUND = json.loads(
    (Path(__file__).resolve().parents[3] / 'docs' / 'results' / 'sepsis.json').read_text('utf-8')
)


def fae(values):
    known = sorted(float('inf') if each is None else each for each in values)
    median = known[len(known) // 2]
    return {
        'median': None if median == float('inf') else median,
        'quartiles': [None, None],
        'reached': sum(each is not None for each in values),
        'values': values,
    }


def row(replay, epsilon, waits, deaths):
    """Make what is summed up of an arm."""
    return {
        'replay': replay,
        'epsilon': epsilon,
        'runs': len(waits),
        'fae': fae(waits),
        'fae_at': {'0.9': fae([None] * len(waits))},
        'mortality': {'mean': float(np.mean(deaths)), 'values': deaths},
        'highest': [0.85] * len(waits),
        'patients': [0, 100],
    }


def summary(*rows, moderate=()):
    return {'phi': 0.8, 'arms': list(rows), 'moderate': {'phi': 0.8, 'arms': list(moderate)}}


def said(*rows):
    return '\n'.join(verdicts(summary(*rows)))


EIGHT = np.linspace(0.0, 0.007, 8)


def test_of_few_runs_nothing_is_said():
    for runs in (1, FEWEST_RUNS - 1):
        clear = [
            row('poisson', 2.0, [90] * runs, [0.5] * runs),
            row('poisson', 8.0, [10] * runs, [0.1] * runs),
        ]
        (words,) = verdicts(summary(*clear))
        assert f'{runs} runs of each setting are too few' in words


def test_overlapping_runs_are_no_trend():
    deaths = 0.2 + EIGHT
    assert 'falls at' not in said(*(row('poisson', e, [None] * 8, EIGHT) for e in (2.0, 8.0)))
    arms = [
        row('poisson', 2.0, [8, 5, 8, 5, 8, 5, 8, 5], deaths.tolist()),
        row('poisson', 8.0, [5, 8, 5, 8, 5, 8, 5, 8], (deaths[::-1] - 1e-4).tolist()),
    ]
    words = said(*arms)
    assert 'FAE at epsilon 2 against 8: no difference (longer in 4, shorter in 4 runs)' in words
    assert 'no change beyond chance' in words and 'it rises' not in words


def test_clear_trends_are_said_with_how_often():
    arms = [
        row('poisson', 2.0, [None] * 8, (0.3 + EIGHT).tolist()),
        row('poisson', 8.0, [50] * 8, (0.2 + EIGHT[::-1]).tolist()),
        row('poisson', 12.0, [50] * 8, (0.19 + EIGHT).tolist()),
        row('poisson', None, [20] * 8, (0.1 + EIGHT).tolist()),
        row('prioritised', 2.0, [None] * 8, (0.3 + EIGHT).tolist()),
        row('prioritised', 8.0, [90] * 7 + [None], (0.3 + EIGHT).tolist()),
        row('prioritised', 12.0, [30] * 7 + [60], (0.3 + EIGHT).tolist()),
    ]
    words = said(*arms)
    assert 'no PER: FAE at epsilon 2 against inf: longer (longer in 8, shorter in 0 runs)' in words
    assert (
        "survival 0.8, FAE with the paper's PER against no PER, by epsilon: "
        '2 not reached by either, 8 longer, 12 no difference' in words
    )  # 7 of 8 is 7 %: chance
    assert 'minus that at inf: 20.00 [20.00, 20.00] points: it rises as epsilon falls' in words
    assert 'beyond chance in 3 of 3 steps' in words
    assert ', ever more steeply, beyond chance in 1 of 1 turns' in words


def test_the_published_trends_are_beyond_chance():
    words = '\n'.join(verdicts(FOUND))
    assert 'it rises as epsilon falls, beyond chance in 4 of 4 steps' in words
    assert ', ever more steeply, beyond chance in 2 of 2 turns' in words
    assert (
        'survival 0.83, no PER: FAE at epsilon 2 against inf: longer (longer in 21, shorter in 0'
        in words
    )
    assert 'shorter,' not in words  # PER, at no epsilon


def test_moderate_sofa_has_verdicts_of_its_own():
    longer = [row('poisson', 2.0, [90] * 8, EIGHT), row('poisson', 8.0, [10] * 8, EIGHT)]
    same = [row('poisson', e, [50] * 8, (0.2 + EIGHT).tolist()) for e in (2.0, 8.0)]
    words = verdicts(summary(*same, moderate=longer))
    found = 'survival 0.8, no PER: FAE at epsilon 2 against 8: '
    assert f'moderate SOFA: {found}longer (longer in 8, shorter in 0 runs)' in words
    assert f'{found}no difference (longer in 0, shorter in 0 runs)' in words


def test_a_survival_that_no_run_reaches_says_how_near_the_best_came():
    arms = [row('poisson', 2.0, [90] * 2, [0.2] * 2), row('poisson', 8.0, [10] * 2, [0.1] * 2)]
    (words,) = not_reached(summary(*arms)).values()
    assert words == (
        'survival 0.9 is reached by no run: the best one had 0.8500 at most, within 100 patients'
    )
    full = {**FOUND, 'phi': 0.99, 'arms': [{**each, 'fae': fae([None])} for each in FOUND['arms']]}
    figure = Figure()
    draw_fae(figure, full)
    texts = [each.get_text() for axes in figure.axes for each in axes.texts]
    assert any('survival 0.99' in each for each in texts)
    assert 'survival 0.99 is reached by no run' in ' '.join(
        printed(fae_table(full, full['paper'], '')).split()
    )


def printed(table):
    console = Console(width=150)
    with console.capture() as kept:
        console.print(table)
    return kept.get()


# Heat maps.


def test_a_heat_map_has_the_spread_of_every_share():
    rng = np.random.default_rng(0)
    runs = [{band: rng.dirichlet(np.ones(25)).tolist() for band in ('all', *BANDS)} for _ in 'abc']
    found = heat_map(runs)['low']
    shares = np.array([run['low'] for run in runs])
    np.testing.assert_allclose(found['shares']['mean'], shares.mean(axis=0))
    half = 4.3026527 * shares.std(axis=0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(found['shares']['high'], shares.mean(axis=0) + half, rtol=1e-6)
    assert min(found['shares']['low']) == 0.0  # no share is below
    grids = shares.reshape(3, 5, 5)
    np.testing.assert_allclose(found['vasopressor']['mean'], grids.sum(axis=1).mean(axis=0))
    np.testing.assert_allclose(found['fluid']['mean'], grids.sum(axis=2).mean(axis=0))
    assert most_frequent(found) == tuple(divmod(int(shares.mean(axis=0).argmax()), 5))[::-1]
    alone = heat_map(runs[:1])['low']
    assert alone['shares']['low'] is None and spread(alone['shares']) is None
    assert '±' in level_words(found['fluid']) and '±' not in level_words(alone['fluid'])


# Plots.


def ends_of_change():
    return FOUND['overall']['difference']['low'], FOUND['overall']['difference']['high']


def test_plots_show_the_paper_beside_what_came_out():
    figure = Figure()
    draw_actions(figure, FOUND)
    frames = {
        axes.get_title().partition(' SOFA')[0]: each.get_xy()
        for axes in figure.axes
        for each in axes.patches
        if isinstance(each, Rectangle)
    }
    assert len(frames) == 7  # of the clinicians' low and medium SOFA the paper tells nothing
    assert frames['DQN: high'] == (-0.5, 3.5)
    assert frames['DP-DQN, epsilon 8: high'] == (2.5, 2.5)
    assert any('±' in each.get_text() for axes in figure.axes for each in axes.texts)
    figure = Figure()
    draw_overall(figure, FOUND)
    dqn, private, change, bars = figure.axes
    assert [len(axes.texts) for axes in figure.axes] == [25, 25, 25, 0]
    surely = [low * high > 0.0 for low, high in zip(*ends_of_change(), strict=True)]
    assert [each.get_weight() == 'bold' for each in change.texts] == surely and any(surely)
    np.testing.assert_allclose(
        dqn.images[0].get_array().reshape(-1),
        100.0 * np.array(FOUND['heat_maps']['DQN']['all']['shares']['mean']),
    )
    assert len(bars.patches) == 15 and not private.get_title().startswith('DQN')
    figure = Figure()
    draw_mortality(figure, FOUND)
    change = figure.axes[2]
    (paper,) = [each for each in change.get_lines() if each.get_marker() == 'D']
    assert list(paper.get_ydata()) == pytest.approx([0.6, 4.6, -4.0])
