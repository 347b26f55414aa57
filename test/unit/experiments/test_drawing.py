# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The style of all plots: colours that everybody can tell, and names for readers."""

from itertools import combinations

from fdrl_ros.experiments.plots.drawing import (
    COLOURS,
    LIMIT,
    NEUTRAL,
    POLICIES,
    style_of,
)
from fdrl_ros.experiments.plots.selector import ROWS
from fdrl_ros.experiments.reports.names import reader_name
from matplotlib.colors import to_rgb
import numpy as np
import pytest

RUN = ('expert', 'pretrained', 'alone', 'global', 'home', 'selector')
"""Rows of a run that stand in one plot."""

# Machado, Oliveira, Fernandes 2009, severity 1: linear RGB as seen.
SEEN_BY = {
    'everybody': np.eye(3),
    'protanopes': [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    'deuteranopes': [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    'tritanopes': [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
LEAST = 8.0
"""Distance in CIELAB (1976); 2.3 can just be told side by side."""


def lab(colour: str, seen: object) -> np.ndarray:
    """Return a colour in CIELAB (D65) as somebody sees it."""
    given = np.array(to_rgb(colour))
    linear = np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(seen) @ linear, 0.0, 1.0)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = (np.array(to_xyz) @ linear) / [0.9505, 1.0, 1.089]
    f = [each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize('who', SEEN_BY)
@pytest.mark.parametrize('names', [RUN, tuple(each for each in ROWS if each != 'hold')])
def test_policies_in_one_plot_are_told_apart_by_colour_and_by_marker(names, who):
    styles = [style_of(each) for each in names]
    assert len({each['marker'] for each in styles}) == len(styles)
    for one, other in combinations(styles, 2):
        apart = lab(one['color'], SEEN_BY[who]) - lab(other['color'], SEEN_BY[who])
        assert np.linalg.norm(apart) > LEAST, (one, other)


def test_colours_are_unique_and_limits_look_like_no_policy():
    assert len(set(COLOURS)) == len(COLOURS) and NEUTRAL not in COLOURS
    assert NEUTRAL not in {colour for colour, _ in POLICIES.values()}
    greys = [style_of(each)['color'] for each in ('hold', 'random', 'untrained')]
    for one, other in combinations((*greys, NEUTRAL, '#000000'), 2):
        assert np.linalg.norm(lab(one, np.eye(3)) - lab(other, np.eye(3))) > LEAST
    assert LIMIT['color'] == NEUTRAL and LIMIT['linestyle'] != '-'


def test_hospitals_have_a_style_of_their_own_wherever_they_are():
    one, two = style_of('hospital_1'), style_of('hospital_2')
    assert one != two and style_of('alone_hospital_1') == one == style_of('home_hospital_1')
    assert style_of('anything else') == {'color': '#000000', 'marker': 'o'}


@pytest.mark.parametrize(
    ('name', 'words'),
    [
        ('alone_hospital_1', 'hospital 1 alone'),
        ('local_hospital_12', 'hospital 12 alone'),
        ('home_north', 'north at home'),
        ('global_3', 'global policy of round 3'),
        ('global', 'global policy'),
        ('global_or_hold', 'global policy or hold'),
        ('hospital_1', 'hospital 1'),
        ('needle_pass', 'needle pass'),
    ],
)
def test_names_are_those_that_a_reader_would_say(name, words):
    assert reader_name(name) == words
