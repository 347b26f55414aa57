# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The audit over many seeds: how near its bounds come to the claim, and what it finds of faults.

Takes about half an hour on one core, so it is not part of `make test`: run `make nightly
ARGS='test/nightly/test_audit.py --save docs/results/audit.json'` to keep the figures.
"""

from dataclasses import replace

from fdrl_ros.audit.privacy_audit import Audit, AuditedTrainer, AuditSettings
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.learner import network_kernel
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy import mechanism
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest
from support.audit_faults import Forgetful, Noiseless
from support.distribution import inclusion_tests, least_p, noise_tests

PLAN = Plan()
SETTINGS = {'patients': PLAN.collection.patients, 'failure': 0.001, 'seeds': [1, 2, 3, 4, 5]}
WIDE = NetworkShape(PLAN.network.states, PLAN.network.actions, (128, 128))
"""A network with room for 20,000 canaries."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def records():
    """Return the records of the first hospital of `make run`."""
    return HospitalSimulator(PLAN.task, PLAN.world, PLAN.collection).collect(PLAN.population(0))


def run(tmp_path, records, seed, *, canaries, q, sigma, delta, rounds, epochs, kind, **more):
    """Audit hospital 1 with other noise and sampling than `make run`, but its clipping."""
    directory = tmp_path / f'{seed}'
    directory.mkdir()
    observers = more.pop('watchers', ())
    whole = Audit(
        records,
        more.pop('shape', PLAN.network),
        replace(PLAN.learner, epochs=epochs, transitions_per_patient=more.pop('transitions', 8)),
        replace(
            PLAN.privacy,
            batch=round(q * records.n_patients),
            noise_multiplier=sigma,
            delta=delta,
            budget=float('inf'),
        ),
        rounds,
        AuditSettings(canaries=canaries, strength=20.0),
        trainer=kind,
        **more,
    )
    source, rng = NoiseSource.seeded(seed), np.random.default_rng([10, seed])
    return whole.run(directory, source, rng, observers=observers)


def figure_of(name, found, canaries):
    """Sum up the audits of one case."""
    bounds = [each.bound for each in found]
    return {
        'case': name,
        'canaries': canaries,
        'patients': found[0].patients,
        'charge': found[0].charge._asdict(),
        'delta': found[0].delta,
        'claimed': found[0].claimed,
        'bounds': bounds,
        'gaussian': [each.gaussian for each in found],
        'attainable': float(np.mean([each.attainable for each in found])),
        'bound_over_claimed': float(np.mean(bounds) / found[0].claimed),
        'median_seconds': float(np.median([each.seconds for each in found])),
    }


REAL = {
    'sigma 1, q 1, 1 step': {'sigma': 1.0, 'q': 1.0, 'rounds': 1, 'epochs': 1},
    'sigma 2, q 1, 1 step': {'sigma': 2.0, 'q': 1.0, 'rounds': 1, 'epochs': 1},
    'sigma 1, q 0.1, 100 steps': {'sigma': 1.0, 'q': 0.1, 'rounds': 2, 'epochs': 5},
    'sigma 4, q 0.25, 200 steps': {'sigma': 4.0, 'q': 0.25, 'rounds': 5, 'epochs': 10},
}


@pytest.mark.parametrize('canaries', [1000, 6000, 18000])
@pytest.mark.parametrize('name', REAL)
def test_the_claim_stands_and_bounds_are_those_of_a_flawless_mechanism(
    tmp_path, records, name, canaries, figures
):
    """A false alarm in one of the 60 runs: at most 60 * 2 * 0.001; the seeds are fixed."""
    wide = canaries > PLAN.network.n_parameters
    found = [
        run(
            tmp_path,
            records,
            seed,
            canaries=canaries,
            delta=1e-5,
            kind=AuditedTrainer,
            shape=WIDE if wide else PLAN.network,
            transitions=2 if wide else 8,
            **REAL[name],
        )
        for seed in SETTINGS['seeds']
    ]
    figures.append(figure_of(name, found, canaries))
    assert all(each.consistent for each in found)
    bounds = [each.bound for each in found]
    assert np.mean(bounds) == pytest.approx(figures[-1]['attainable'], abs=0.5)
    assert np.mean(bounds) > 0.15 * found[0].claimed


def test_the_claim_of_make_run_stands(tmp_path, records, figures):
    """All that training is: 60 transitions a patient, 6 rounds of 12 epochs, its budget."""
    found = []
    for seed in SETTINGS['seeds']:
        directory = tmp_path / f'{seed}'
        directory.mkdir()
        whole = Audit(records, PLAN.network, PLAN.learner, PLAN.privacy, PLAN.rounds.rounds)
        source, rng = NoiseSource.seeded(seed), np.random.default_rng([10, seed])
        found.append(whole.run(directory, source, rng))
    figures.append(figure_of('make run', found, AuditSettings().canaries))
    assert all(each.consistent for each in found)
    assert found[0].charge.steps == 288 and found[0].claimed < PLAN.privacy.budget


FAULTS = {
    'no noise': (Noiseless, None, {'rounds': 2, 'epochs': 5, 'sigma': 4.0}),
    'no clipping': (AuditedTrainer, 0.0, {'rounds': 2, 'epochs': 5, 'sigma': 4.0}),
    'clipping at 10 C': (AuditedTrainer, 10.0, {'rounds': 2, 'epochs': 5, 'sigma': 4.0}),
    'an accountant a round': (Forgetful, None, {'rounds': 30, 'epochs': 1, 'sigma': 2.0}),
}


@pytest.mark.parametrize('name', FAULTS)
def test_planted_faults_are_proven(tmp_path, records, name, figures, monkeypatch):
    kind, scale, changes = FAULTS[name]
    for module in (network_kernel, mechanism) if scale is not None else ():
        # of the compiled way, and of NumPy's
        monkeypatch.setattr(module, 'clip_limit', lambda clip_norm: (scale or 1e9) * clip_norm)
    found = [
        run(tmp_path, records, seed, canaries=2000, q=0.25, delta=1e-5, kind=kind, **changes)
        for seed in SETTINGS['seeds']
    ]
    figures.append(figure_of(name, found, 2000))
    assert all(each.bound > each.claimed for each in found)
    assert all(each.gaussian > each.claimed for each in found)


def test_batches_and_noise_are_as_the_accountant_takes_them(tmp_path, records, figures):
    """40 histories of 20 steps; each test family falls below p = 0.01 in 4 once in 2000."""
    least = {'inclusion': [], 'noise': []}
    for seed in range(40):
        seen = []
        made = run(
            tmp_path,
            records,
            seed,
            canaries=20,
            q=0.25,
            sigma=2.0,
            delta=1e-5,
            rounds=1,
            epochs=5,
            kind=AuditedTrainer,
            observers=(seen.append,),
        )
        units, q = made.patients + 20, made.charge.sampling_probability
        least['inclusion'].append(least_p(inclusion_tests([s.units for s in seen], units, q)))
        told = {'noise_multiplier': 2.0, 'clip_norm': PLAN.privacy.clip_norm}
        least['noise'].append(least_p(noise_tests(seen, expected_batch=units * q, **told)))
    figures.append({'case': 'distributions', 'least_p': least})
    for values in least.values():
        assert sum(value < 0.01 for value in values) < 4
