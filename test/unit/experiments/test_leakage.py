# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl attack` on tiny regimes: seats, resuming, refusals, and its sentences."""

from dataclasses import replace
import json
import math
from pathlib import Path

from click.testing import CliRunner, Result
from fdrl_ros.cli import main
from fdrl_ros.cli.experiments import attack
from fdrl_ros.errors import SettingError, StoreError, TrainingStopped
from fdrl_ros.experiments.studies.leakage import simulation, study, surface
from fdrl_ros.experiments.studies.leakage.settings import (
    AttackSettings,
    DELTA,
    Regime,
    REGIMES,
)
from fdrl_ros.experiments.studies.leakage.simulation import ALIGNMENT, ERROR, Simulation
from fdrl_ros.experiments.studies.leakage.study import candidates, run_leakage
from fdrl_ros.experiments.studies.leakage.summary import summarise, verdicts
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.privacy.accountant.accountant import epsilon_paper, epsilon_pld
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.worlds.paper.env import PaperHospital
from fdrl_ros.worlds.paper.utility import utility
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

FIXED = dict(REGIMES)
TINY = Regime(
    'tiny',
    records=6,
    batch=6,
    rounds=4,
    epochs=60,
    central_epochs=400,
    clip_norm=1e6,
    proximal=0.0,
)
SETTINGS = AttackSettings(
    regimes='memorising', models=24, seeds=2, observed=2, resamples=20, workers=1
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put tiny regimes in place of those that are fixed."""
    monkeypatch.setitem(REGIMES, 'memorising', TINY)
    noisy = replace(TINY, rounds=2, epochs=2, central_epochs=3, noise=0.1, clip_norm=0.4)
    monkeypatch.setitem(REGIMES, 'paper', noisy)


@pytest.fixture
def without_inversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes most of the time."""
    found = {'one step': {'recall': 0.5, 'chance': 0.1}}
    monkeypatch.setattr(study, '_inversion', lambda world, rng: found)


def fdrl(*words: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in words])


def test_a_coalition_of_two_of_three_sees_the_update_of_the_third() -> None:
    seen = Simulation(TINY, 1, 3, 0.5, 4).model(0).seen
    for kind, most in ((ERROR, 1e-3), (ALIGNMENT, 1e-4)):
        assert np.abs(seen['coalition', kind] - seen['own', kind]).max() < most
    assert np.abs(seen['own', ALIGNMENT] - seen['aggregate', ALIGNMENT]).max() > 0.1
    assert np.abs(seen['aggregator', ALIGNMENT]).max() < 0.1  # 5 standard errors of 1 / sqrt(4804)


def test_a_coalition_of_six_of_ten_sees_the_sum_of_four() -> None:
    world = Simulation(replace(TINY, records=2, batch=2), 1, 10, 0.5, 1)
    changes = list(np.random.default_rng(1).normal(size=(10, 7)))
    found = world._left_over(np.mean(changes, axis=0), changes, 3)
    assert found == pytest.approx(np.mean([changes[each] for each in (0, 1, 2, 3)], axis=0))


def test_models_of_a_seed_differ_by_who_took_part_and_repeat() -> None:
    world = Simulation(TINY, 1, 3, 0.5, 2)
    first, second = world.members(0), world.members(1)
    assert (first != second).any() and (first == world.members(0)).all()
    assert world.train(0).values.tobytes() == world.train(0).values.tobytes()
    assert (world.train(0).values != world.train(1).values).any()


def test_candidates_are_all_states_and_actions_with_the_gradient_of_q() -> None:
    start = simulation.SHAPE.draw(np.random.default_rng(3))
    lines, atoms = candidates(start)
    assert atoms.shape == (1728, simulation.SHAPE.n_parameters) and len(np.unique(lines, axis=0))
    change = np.random.default_rng(4).normal(size=atoms.shape[1])
    scale = 1e-3
    policies = [(start + sign * scale * change).astype(np.float32) for sign in (1.0, -1.0)]
    ahead, behind = (study.values_in(each).reshape(-1).astype(np.float64) for each in policies)
    assert atoms @ change == pytest.approx((ahead - behind) / (2.0 * scale), abs=0.02)


def test_what_is_memorised_is_found_and_ciphertexts_tell_nothing(tmp_path: Path) -> None:
    said: list[object] = []
    one = replace(SETTINGS, seed=2, seeds=1)
    summary = summarise(run_leakage(tmp_path, one, Caller(said.append)), one)
    seats = summary['regimes']['memorising']['seats']
    best = summary['regimes']['memorising']['strongest']
    assert seats['central'][best['central']]['auc']['mean'] > 0.7
    assert abs(seats['aggregator']['alignment']['auc']['mean'] - 0.5) < 0.1
    assert summary['regimes']['memorising']['inversion']['one step']['recall']['mean'] > 0.2
    assert said and (tmp_path / 'parts/memorising_2.json').exists()


def test_a_stopped_study_goes_on_and_what_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_inversion: None
) -> None:
    short = replace(SETTINGS, models=4)
    asked = iter(range(10**6))
    with pytest.raises(TrainingStopped):
        run_leakage(tmp_path, short, Caller(stopped=lambda: next(asked) > 60))
    whole = run_leakage(tmp_path, short)
    monkeypatch.setattr(study, 'measure', None)  # nothing is measured again
    assert run_leakage(tmp_path, short) == whole
    with pytest.raises(StoreError, match='other settings'):
        run_leakage(tmp_path, replace(short, heterogeneity=0.0))
    kept = tmp_path / 'parts/memorising_1.json'
    part = json.loads(kept.read_text())
    del part['attacks']['own']
    kept.write_text(json.dumps(part))
    with pytest.raises(StoreError, match='cannot be read'):
        run_leakage(tmp_path, short)


def test_the_command_prints_and_writes_what_it_found(
    tmp_path: Path, without_inversion: None
) -> None:
    flags = '--regimes paper --models 24 --seeds 1 --resamples 10 --observed 1 --workers 1'
    done = fdrl('attack', '--directory', tmp_path, *flags.split())
    assert done.exit_code == 0, done.output
    assert 'NOT PRIVATE' in done.output and 'shuffled labels' in done.output
    summary = json.loads((tmp_path / 'attack.json').read_text())
    paper = summary['regimes']['paper']
    assert 0.5 < paper['bounds']['federated']['pair']['auc'] < 0.9 and not paper['broken']
    assert (tmp_path / 'attack.png').read_bytes().startswith(b'\x89PNG')
    assert 'released centralised policy' in (tmp_path / 'report.md').read_text()


def test_the_surface_has_a_cell_for_each_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack, 'HETEROGENEITIES', (0.0, 1.0))
    monkeypatch.setattr(attack, 'NOISES', (0.01, 1.0))
    monkeypatch.setattr(surface, '_VALUED', 2)
    flags = '--surface --seeds 2 --models 16 --resamples 10 --workers 1'
    done = fdrl('attack', '--directory', tmp_path, *flags.split())
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / 'surface.json').read_text())['rows']
    assert [len(row) for row in rows] == [2, 2]
    assert rows[0][0]['bound']['mean'] > rows[0][1]['bound']['mean']
    assert len(rows[0][0]['plr']['values']) == 2
    names = {each.stem for each in (tmp_path / 'cells').glob('*.json')}
    assert names == {f'H{h}_s{s}_seed{i}' for h in (0, 1) for s in (0.01, 1) for i in (1, 2)}


def test_utility_is_exact_and_its_ceiling_is_that_of_any_single_policy() -> None:
    alike = [PaperHospital(each, 3, 0.0, 1) for each in range(3)]
    best = utility(alike, alike[0].best)
    assert best.a_task == best.ceiling == 1.0 and best.value == pytest.approx(best.expert)
    apart = [PaperHospital(each, 3, 1.0, 1) for each in range(3)]
    found = [utility(apart, each.best) for each in apart]
    ceiling = found[0].ceiling
    assert max(each.a_task for each in found) <= ceiling < 1.0
    assert max(each.value for each in found) < found[0].expert
    worst = utility(apart, np.argmax(apart[0].law.costs, axis=1))
    assert worst.a_task < 0.3 and worst.value < found[0].value


def test_unknown_regimes_and_impossible_noise_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match='did you mean memorising'):
        AttackSettings(regimes='memorizing')
    with pytest.raises(SettingError, match='noise'):
        AttackSettings(noise=-0.5)
    done = fdrl('attack', '--directory', tmp_path, '--regimes', 'papr')
    assert done.exit_code == 1 and 'did you mean paper' in done.output


def test_regimes_are_those_that_were_fixed() -> None:
    """Change a regime only with new seeds and a new result file."""
    paper, matched = FIXED['paper'], FIXED['matched']
    assert (paper.records, paper.rounds, paper.epochs, paper.central_epochs) == (100, 50, 5, 15)
    sigmas = [paper.privacy(central, 3).noise_multiplier for central in (False, True)]
    assert sigmas == pytest.approx([0.1 * 25 / 0.4, 0.1 * 75 / 0.4])
    memorising = FIXED['memorising']
    assert memorising.proximal == memorising.noise == 0.0 and memorising.clip_norm == 1e6
    assert matched.steps(True) == matched.steps(False) == 1000
    assert matched.noise == 0.0 and math.isinf(matched.epsilon) and matched.clip_norm == 0.4
    private = FIXED['private']
    assert private.epsilon == 8.0 and private.charge(False, 3).noise_multiplier > 1.0
    assert isinstance(matched.learner(False), LearnerSettings)
    assert matched.learner(False).proximal > matched.learner(True).proximal == 0.0


def test_both_epsilons_of_the_papers_regime_by_hand() -> None:
    """
    FDRL Eq. 22 and 23 at alpha = 2, and the true epsilon by a central limit theorem.

    Many steps of Poisson sampling compose to a Gaussian of mu = q sqrt(T (e^(1 / sigma^2) - 1))
    (Dong, Roth and Su 2019).
    """
    for central, sigma, steps in ((False, 0.1 * 25 / 0.4, 1000), (True, 0.1 * 75 / 0.4, 60)):
        charge = FIXED['paper'].charge(central, 3)
        assert charge == (pytest.approx(sigma), 0.25, steps, 1)
        assert epsilon_paper(2.0, charge.noise_multiplier) == pytest.approx(1.0 / sigma**2)
        mu = 0.25 * math.sqrt(steps * math.expm1(1.0 / sigma**2))

        def delta(epsilon: float, mu: float = mu) -> float:
            low, high = (norm.cdf(-epsilon / mu + side * mu / 2.0) for side in (1.0, -1.0))
            return float(low - math.exp(epsilon) * high)

        exact = brentq(lambda epsilon: delta(epsilon) - DELTA, 0.0, 20.0)
        assert epsilon_pld([charge], DELTA) == pytest.approx(exact, rel=0.05)


def test_a_ratio_is_told_only_where_its_denominator_is_measured() -> None:
    def part(seed: int, federated: float, central: float, above: float) -> dict[str, object]:
        def row(plr: float) -> dict[str, object]:
            each = {'low': 0.0, 'high': 1.0, 'error': 0.1, 'surely_above': above}
            kinds = {'auc': 0.5 + plr, 'tpr': 0.01, 'plr': plr}
            return {name: {'value': value, **each} for name, value in kinds.items()}

        seats = {
            seat: {
                'calibrated loss': row(central if seat == 'central' else federated),
                'shuffled loss': row(0.0),
            }
            for seat in ('central', 'released', 'aggregate', 'own', 'aggregator', 'coalition')
        }
        pair = {'auc': 0.9, 'tpr': 0.3, 'information': 0.4}
        side = {'pair': pair, 'epsilon': 8.0, 'epsilon_paper': 0.1, 's': 0.1}
        both = {'federated': 0.5, 'central': 0.25}
        return {
            'seed': seed,
            'attacks': seats,
            'bounds': {'federated': side, 'central': side},
            'divergence': {f'{each:g}': both for each in study.TEMPERATURES},
            'inversion': {'one step': {'recall': 0.5, 'chance': 0.1}},
            'prior': {'step': 0.2, 'round': 0.3},
        }

    settings = replace(SETTINGS, seeds=2)
    one = summarise({'paper': [part(1, 0.04, 0.1, 0.0), part(2, 0.05, 0.11, 0.0)]}, settings)
    said = ' '.join(verdicts(one))
    assert 'changes PLR by -57' in said and 'no attack is above' in said
    none = summarise({'paper': [part(1, 0.04, 0.1, 0.5), part(2, 0.05, -0.1, 0.5)]}, settings)
    said = ' '.join(verdicts(none))
    assert 'not measurable' in said and 'above their bounds' in said
    effect = one['regimes']['paper']['effectiveness']['1']['epsilon']['federated']['values'][0]
    assert effect == pytest.approx(0.3 * 0.96 + 0.4 * 0.5 + 0.3 * math.exp(-8.0))
