# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Epsilon beside dp-accounting on 200 random histories, and beside Opacus where its assumptions hold.

Takes about five minutes on one core, so it is not part of `make test`; on its own:
`python -m pytest test/nightly/test_accountant.py`, with `--save docs/results/accountant.json` to
keep the figures.
"""

import statistics

from fdrl_ros.privacy.accountant import renyi
from fdrl_ros.privacy.accountant.accountant import Account, Charge, epsilon_pld, epsilon_rdp, Tally
from fdrl_ros.privacy.accountant.calibration import noise_multiplier_for
from fdrl_ros.privacy.accountant.loss_distribution import Composer
import numpy as np
import pytest
from support.epsilon_reference import random_history, upper_and_lower

SETTINGS = {'seed': 2026, 'histories': 200}
DELTA = 1e-5
# sigma, q, steps of one kind: Opacus' PRV takes minutes, or gives up, beyond.
OPACUS = [
    (1.0, 0.01, 250),
    (1.0, 0.01, 10_000),
    (1.0, 0.1, 250),
    (2.0, 0.1, 1000),
    (4.0, 0.64, 50),
]

pytestmark = pytest.mark.slow


def test_epsilon_is_within_a_percent_of_the_library_on_random_histories(figures):
    rng, above, beside = np.random.default_rng(SETTINGS['seed']), [], []
    for _ in range(SETTINGS['histories']):
        history, delta = random_history(rng)
        epsilon = epsilon_pld(history, delta)
        interval = min(1e-2, max(2e-4, epsilon / 1000.0))
        upper, lower = upper_and_lower(history, delta, interval)
        (coarse,) = upper_and_lower(history, delta, 2.0 * interval, lower=False)
        # The error of the library's grid is four times as large on one twice as coarse.
        extrapolated = (4.0 * upper - coarse) / 3.0
        assert lower <= epsilon <= 1.01 * upper, (history, delta)
        assert epsilon <= epsilon_rdp(history, delta)
        if interval > 2e-4:
            above.append(epsilon / upper - 1.0)
            beside.append(epsilon / extrapolated - 1.0)
            # The library's transforms lose about 1e-9 of mass in thousands of steps, upwards.
            assert beside[-1] > (-5e-4 if delta > 1e-6 else -3e-3), (history, delta)
    figures.append(
        {
            'compared': len(above),
            'most above the pessimistic bound': max(above),
            'median beside the extrapolated bound': statistics.median(beside),
            'least beside it': min(beside),
            'most beside it': max(beside),
        }
    )


@pytest.mark.parametrize('sigma', [1.1, 4.0])
def test_ten_thousand_sampling_probabilities_cost_a_percent_more_at_most(sigma, figures):
    history = [Charge(sigma, 64.0 / (1000 + i), 1) for i in range(10_000)]
    tally = Tally.from_history(history)
    assert len(tally.exact) == 10_000 and len(tally.tight.counts) <= 512
    exact = Composer().epsilon(tally.exact, 0.0, tally.curve()[0], DELTA)
    rounded = epsilon_pld(history, DELTA)
    assert exact < rounded < 1.01 * exact
    figures.append({'sigma': sigma, 'exact': exact, 'rounded': rounded})


def test_an_account_that_grows_by_thousands_of_charges_tells_what_one_made_at_once_tells():
    history = [Charge(1.1, 64.0 / (1000 + i), 1 + i % 3) for i in range(2000)]
    account = Account(DELTA)
    for i, charge in enumerate(history):
        account.add(charge)
        if i % 100 == 99:
            made = epsilon_pld(history[: i + 1], DELTA)
            assert account.epsilon_pld() == pytest.approx(made, rel=2e-3)


@pytest.mark.parametrize('sigma, group', [(1.1, 10), (4.0, 50), (4.0, 200)])
def test_patients_of_many_transitions_cost_what_the_library_says(sigma, group, figures):
    charge = (sigma, 64 / 50_000, 20_000, group)
    epsilon = epsilon_pld([charge], DELTA)
    (upper,) = upper_and_lower([charge], DELTA, 1e-3, lower=False)
    assert 0.995 * upper < epsilon < 1.01 * upper
    figures.append({'sigma': sigma, 'group': group, 'epsilon': epsilon, 'library': upper})


@pytest.mark.parametrize('sigma, q, steps', OPACUS)
def test_epsilon_is_that_of_opacus(sigma, q, steps, figures):
    accountants = pytest.importorskip('opacus.accountants', reason='Opacus is not installed')
    analysis = pytest.importorskip('opacus.accountants.analysis.rdp')
    orders = np.array([1.1, 1.5, 2.0, 4.5, 10.9, 12.0, 40.0])
    ours = renyi.integrated_log_moments(sigma, q, orders) / (orders - 1.0)
    theirs = analysis.compute_rdp(q=q, noise_multiplier=sigma, steps=1, orders=orders.tolist())
    assert ours == pytest.approx(np.asarray(theirs), rel=1e-4)

    charge = Charge(sigma, q, steps)
    for name, epsilon, options, error in (
        ('RDP', epsilon_rdp, {}, 0.03),
        ('PRV', epsilon_pld, {'eps_error': 0.01}, 0.0),
    ):
        accountant = getattr(accountants, f'{name}Accountant')()
        accountant.history = [tuple(charge[:3])]
        their = accountant.get_epsilon(delta=DELTA, **options)
        our = epsilon([charge], DELTA)
        # Opacus has fewer orders, and gives the upper end of its interval.
        assert their * (1.0 - error) - 0.025 <= our <= 1.005 * their
        figures.append({'sigma': sigma, 'q': q, 'steps': steps, name: our, 'Opacus': their})


def test_calibrated_noise_is_that_of_opacus():
    utils = pytest.importorskip('opacus.accountants.utils', reason='Opacus is not installed')
    theirs = utils.get_noise_multiplier(
        target_epsilon=4.0, target_delta=DELTA, sample_rate=0.05, steps=500, accountant='prv'
    )
    ours = noise_multiplier_for(epsilon=4.0, delta=DELTA, phases=[(0.05, 500)])
    assert ours == pytest.approx(theirs, rel=0.01)
