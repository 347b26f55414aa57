# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the shield says of a move bounds the force that comes; wrong look-ups are found out."""

from fdrl_ros.selector import ShieldSettings
from fdrl_ros.shield.excursion import Excursion
from fdrl_ros.shield.prediction import Prediction
from fdrl_ros.shield.proof import check_forces
import numpy as np
import pytest

SETTINGS = ShieldSettings()


@pytest.mark.parametrize('wide', [True, False], ids=['wide', 'usual'])
@pytest.mark.parametrize('procedure', ['retraction', 'follow'])
def test_no_force_is_above_what_is_said_of_a_move(procedure, wide):
    finding = check_forces(SETTINGS, procedure, wide, fine=1)
    assert finding.holds, finding.failure
    assert finding.cells > 1_000_000


@pytest.mark.parametrize('place', [0, 1])
def test_tables_that_are_read_one_row_too_low_are_found_out(monkeypatch, place):
    places = Excursion.places

    def lower(self, speed, behind):
        rows = list(places(self, speed, behind))
        rows[place] = np.maximum(rows[place] - 1, 0)
        return tuple(rows)

    monkeypatch.setattr(Excursion, 'places', lower)
    finding = check_forces(SETTINGS, 'retraction', True, fine=0)
    assert not finding.holds and finding.failure['short'] > 0.1


def test_a_forecast_that_forgets_a_move_that_is_still_to_come_is_found_out(monkeypatch):
    force = Prediction.force

    def forgetful(self, seen, *others):
        return force(self, seen._replace(pending=0 * seen.pending), *others)

    monkeypatch.setattr(Prediction, 'force', forgetful)
    assert not check_forces(SETTINGS, 'retraction', True, fine=0).holds


def test_a_forecast_for_the_softest_tissue_alone_is_found_out(monkeypatch):
    within = Prediction._within

    def softest(self, seen, far, move, deeper, deepest, ends, *others):
        return within(self, seen, far, move, deeper, deepest, (ends[0], ends[0]), *others)

    monkeypatch.setattr(Prediction, '_within', softest)
    assert not check_forces(SETTINGS, 'retraction', False, fine=0).holds
