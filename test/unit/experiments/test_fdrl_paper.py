# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl reproduce fdrl` on tiny settings: policies, verdicts, the report, resuming, refusals."""

from collections.abc import Sequence
from dataclasses import replace
import json
from pathlib import Path
import re

from click.testing import CliRunner, Result
from fdrl_ros.cli import main
from fdrl_ros.errors import SettingError, StoreError, TrainingStopped
from fdrl_ros.experiments.intervals import Interval, interval, percent_change
from fdrl_ros.experiments.studies.fdrl_paper import cost, policies, rounds
from fdrl_ros.experiments.studies.fdrl_paper.claims import (
    NOT,
    of_change,
    of_level,
    of_margin,
    of_trend,
    PARTLY,
    REPRODUCED,
    UNMEASURABLE,
    UNMEASURED,
)
from fdrl_ros.experiments.studies.fdrl_paper.grid import run_grid
from fdrl_ros.experiments.studies.fdrl_paper.policies import (
    actions_of,
    Appraisal,
    Learners,
    public_start,
)
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings
from fdrl_ros.experiments.studies.leakage import study
from fdrl_ros.experiments.studies.leakage.settings import Regime, REGIMES
from fdrl_ros.experiments.studies.leakage.simulation import Simulation
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.worlds.paper.env import PaperHospital, STATES
from fdrl_ros.worlds.paper.law import ended, GRID
from fdrl_ros.worlds.paper.utility import agreement, UNIFORM
from hypothesis import given, strategies
import numpy as np
import pytest

TINY = Regime('tiny', records=8, batch=2, rounds=3, epochs=2, central_epochs=2, noise=0.1)
SETTINGS = FdrlSettings(
    seeds=2,
    models=4,
    levels='0, 0.5',
    noises='0.1, 1',
    draws=1,
    records='8',
    patients=4,
    resamples=10,
    workers=1,
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put tiny regimes, few rounds and small sizes in place of those that are fixed."""
    for name in REGIMES:
        monkeypatch.setitem(REGIMES, name, TINY)
    monkeypatch.setattr(rounds, 'ROUNDS', (1, 3))
    monkeypatch.setattr('fdrl_ros.experiments.studies.fdrl_paper.summary.ROUNDS', (1, 3))
    monkeypatch.setattr(cost, 'RECORDS', (8, 16))
    monkeypatch.setattr(cost, 'HOSPITALS', (3, 4))
    monkeypatch.setattr(policies, '_FIT_STEPS', 20)
    found = {'one step': {'recall': 0.5, 'chance': 0.1}}
    monkeypatch.setattr(study, '_inversion', lambda world, rng: found)
    public_start.cache_clear()


def fdrl(*words: object) -> Result:
    return CliRunner().invoke(main, ['reproduce', 'fdrl', *(str(each) for each in words)])


def spread(mean: float, half: float) -> Interval:
    """Return an interval of two seeds around a mean."""
    return interval([mean - half, mean + half, mean])


@pytest.mark.parametrize(
    ('found', 'verdict'),
    [
        (spread(-60.0, 2.0), REPRODUCED),
        (spread(-90.0, 2.0), REPRODUCED),
        (spread(-40.0, 2.0), REPRODUCED),  # more than half, surely
        (spread(-20.0, 2.0), PARTLY),
        (spread(-30.0, 9.0), PARTLY),  # perhaps half, surely some
        (spread(-2.0, 9.0), NOT),  # neither half nor surely any
        (spread(30.0, 2.0), NOT),
        (spread(-30.0, 50.0), UNMEASURABLE),  # holds 0 and the claim
        (None, UNMEASURABLE),
        (interval([-60.0]), UNMEASURABLE),
    ],
)
def test_a_change_has_the_verdict_of_its_sign_and_size(
    found: Interval | None, verdict: str
) -> None:
    assert of_change(found, -60.0) == verdict


def test_margins_levels_and_trends_have_the_verdict_of_their_interval() -> None:
    assert of_margin(spread(0.5, 0.1), 1.5) == REPRODUCED
    assert of_margin(spread(-9.0, 0.1), 1.5) == NOT == of_margin(spread(9.0, 0.1), 1.5)
    assert of_margin(spread(1.5, 0.5), 1.5) == UNMEASURABLE
    assert of_level(spread(0.95, 0.01), 0.92) == REPRODUCED
    assert of_level(spread(0.5, 0.01), 0.92) == NOT
    assert of_level(spread(0.92, 0.01), 0.92) == UNMEASURABLE
    assert of_trend(spread(-1.0, 0.1), -1) == REPRODUCED
    assert of_trend(spread(1.0, 0.1), -1) == NOT
    assert of_trend(spread(0.0, 1.0), -1) == UNMEASURABLE


@given(strategies.lists(strategies.floats(0.5, 2.0), min_size=3, max_size=9))
def test_a_ratio_is_told_only_where_its_denominator_is_not_0(values: Sequence[float]) -> None:
    steady = [10.0 + each for each in values]
    doubled = percent_change([2.0 * each for each in steady], steady)
    assert doubled is not None and doubled['mean'] == pytest.approx(100.0)
    around_0 = [sign * each for each in values for sign in (-1.0, 1.0)]
    assert percent_change(steady * 2, around_0) is None


def test_the_interval_of_a_ratio_covers_as_often_as_it_says() -> None:
    rng, held = np.random.default_rng(1), 0
    for _ in range(400):
        base = rng.normal(1.0, 0.3, 10)  # a denominator as uncertain as in the leakage study
        found = percent_change(list(0.4 * base + rng.normal(0.0, 0.02, 10)), list(base))
        assert found is not None and found['low'] is not None and found['high'] is not None
        held += found['low'] <= -60.0 <= found['high']
    assert 0.9 < held / 400 < 0.98


@given(strategies.lists(strategies.floats(0.1, 9.0), min_size=2, max_size=9))
def test_nothing_that_is_positive_falls_by_more_than_all(values: Sequence[float]) -> None:
    found = percent_change(values, [10.0 - each / 10.0 for each in values])
    assert found is not None and found['low'] is not None and found['low'] >= -100.0


def test_another_noise_leaves_the_baseline_of_the_paper_as_it_is() -> None:
    changed = replace(SETTINGS, noise=0.5)
    for regime in (changed.regime(0.5, matched=False), replace(REGIMES['paper'], noise=0.5)):
        assert regime.privacy(False, 3).noise_multiplier == pytest.approx(0.5 * 25 / 0.4)
        assert regime.privacy(True, 3).noise_multiplier == pytest.approx(0.1 * 75 / 0.4)
    matched = changed.regime(0.5)
    assert matched.privacy(True, 3).noise_multiplier == pytest.approx(0.5 * 75 / 0.4)
    assert all('s = ' not in each.what for each in REGIMES.values())


def test_masked_updates_are_added_and_decrypted_to_their_mean() -> None:
    exchange = cost.Exchange(3)
    assert exchange.round() == pytest.approx(exchange.updates.mean(axis=0), abs=1e-4)


def test_a_policy_is_worth_what_its_definition_says() -> None:
    homes = [PaperHospital(each, 3, 0.8, 2) for each in range(3)]
    found, rng = Appraisal(homes, 5, 1), np.random.default_rng(3)
    actions = rng.integers(3, size=len(STATES))
    going = [place for place in range(len(STATES)) if not ended(GRID)[place]]
    hits = [home.expert(STATES[s])[1][actions[s]] < 1e-9 for home in homes for s in going]
    worth = found.worth(actions)
    assert worth['a_task'] == pytest.approx(np.mean(hits))
    assert worth['value'] == pytest.approx(np.mean(list(worth['values'].values())))
    marks = found.yardsticks()
    assert marks['majority']['share'] == pytest.approx(1.0)
    assert marks['majority']['a_task'] == agreement(homes, actions).ceiling
    assert marks['expert']['a_task'] == 1.0
    assert marks['expert']['value'] >= max(worth['value'], marks['majority']['value'])
    assert marks['stabilise']['success'] == 0.0  # an operation that nobody goes on with
    assert marks['random']['a_task'] == pytest.approx(agreement(homes, actions).chance)


def test_doing_nothing_mitigates_most_risk_and_a_step_of_it_is_equation_10() -> None:
    home = PaperHospital(0, 3, 0.5, 1)
    found = Appraisal([home], 50, 1)
    assert found.worth(np.full(len(STATES), 2))['r_mit'] > found.worth(home.best)['r_mit']
    records = home.rollout(None, 50, 1 + 10**6)
    cases = []
    for start, end in zip(records.starts[:-1], records.starts[1:], strict=True):
        after = records.next_states[start:end]
        cases.append(np.mean(0.4 * after[:, 1] + 0.4 * after[:, 2] + 0.2 * (after[:, 3] == 1.0)))
    assert found.worth(UNIFORM)['r_mit'] == pytest.approx(1.0 - np.mean(cases))


def test_the_public_start_is_the_expert_of_the_mean_hospital() -> None:
    alike = Appraisal([PaperHospital()], 1, 1)
    assert alike.worth(actions_of(public_start(1)))['a_task'] > 0.9


def test_baselines_take_the_steps_and_the_epsilon_that_they_are_named_for() -> None:
    settings = FdrlSettings()
    same, less = settings.regime(0.1), settings.regime(0.1 / 3)
    assert same.steps(True) == same.steps(False) == 1000
    assert settings.regime(0.1, matched=False).steps(True) == 60
    hospital, central = less.charge(True, 3), same.charge(False, 3)
    assert hospital.noise_multiplier == pytest.approx(central.noise_multiplier)
    assert hospital.sampling_probability == central.sampling_probability
    assert hospital.steps == central.steps


def test_the_baseline_is_seen_on_the_way_of_one_run(tiny: None) -> None:
    world = Simulation(TINY, 1, 3, 0.5, 1)
    seen = rounds._Baseline(world, replace(TINY, central_epochs=6))
    first, last = seen.stages(world.members(0), np.random.default_rng(1))
    again = rounds._Baseline(world, replace(TINY, central_epochs=6))
    again.steps = again.steps[-1:]
    (only,) = again.stages(world.members(0), np.random.default_rng(1))
    assert (last == only).all() and (first != last).any()


def test_hospitals_alone_learn_from_their_own_records_only(tiny: None) -> None:
    world = Simulation(replace(TINY, noise=0.0), 1, 3, 0.5, 1)
    before = Learners(world).alone()
    changed = Learners(world)
    changed.members[: 2 * TINY.records] ^= True  # others at the first hospital
    after = changed.alone()
    assert (before[0] != after[0]).any()
    assert all((a == b).all() for a, b in zip(before[1:], after[1:], strict=True))


def test_the_command_writes_a_report_that_needs_nothing_else(tmp_path: Path, tiny: None) -> None:
    flags = {
        'models': 4, 'levels': '0, 1', 'noises': '0, 0.1, 1', 'heterogeneity': 1, 'draws': 1,
        'records': '8', 'patients': 4,
        'resamples': 10, 'workers': 1,
    }  # fmt: skip
    words = [str(each) for name, value in flags.items() for each in (f'--{name}', value)]
    done = fdrl('--quick', '--directory', tmp_path, *words)
    assert done.exit_code == 0, done.output
    assert "claims in the paper's own setting" in done.output and 'NOT PRIVATE' in done.output
    page = (tmp_path / 'report.html').read_text()
    assert page.count('<svg') == 6 and 'a look, no claim' in page and '--models 4' in page
    outside = re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page)
    assert not outside and 'url(http' not in page
    assert 'other reading' in page and 'SHA-256 of the parts' in page
    names = re.findall(r'\bid="([^"]+)"', page)
    assert names and all(re.match(r'(fig\d|records|part)-', each) for each in names)
    summary = json.loads((tmp_path / 'fdrl.json').read_text())
    assert {each['verdict'] for each in summary['claims']} == {UNMEASURED}  # a look judges nothing
    assert len(summary['claims']) > 20
    text = (tmp_path / 'report.md').read_text()
    assert all(f']({name}.png)' in text for name in ('fig3', 'fig4', 'fig5', 'fig6', 'fig7'))
    assert all((tmp_path / f'fig{each}.png').exists() for each in range(3, 8))


def test_a_stopped_study_goes_on_and_changed_settings_are_refused(
    tmp_path: Path, tiny: None
) -> None:
    asked = iter(range(10**6))
    with pytest.raises(TrainingStopped):
        run_grid(tmp_path, SETTINGS, Caller(stopped=lambda: next(asked) > 3))
    whole = run_grid(tmp_path, SETTINGS)
    assert run_grid(tmp_path, SETTINGS) == whole and len(whole['0.5']) == 2
    with pytest.raises(StoreError, match='other settings'):
        run_grid(tmp_path, replace(SETTINGS, noise=0.5))
    kept = next(tmp_path.glob('*.json'))
    kept.write_text(kept.read_text()[:100])
    with pytest.raises(StoreError, match='cannot be read'):
        run_grid(tmp_path, SETTINGS)


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        (('--seeds', 9), 'at least 10'),
        (('--levels', '0, 2'), 'rising numbers from 0 to 1'),
        (('--noises', '1, 0.1'), 'rising numbers'),
        (('--noises', '0, 0.1'), 'at least two numbers above 0'),
        (('--levels', '0.5'), 'at least two'),
        (('--records', '101'), 'multiples of 4'),
    ],
)
def test_what_would_claim_too_much_or_cannot_be_is_refused(
    tmp_path: Path, words: tuple[str, object], said: str
) -> None:
    done = fdrl('--directory', tmp_path / 'run', *words)
    assert done.exit_code == 1 and said in ' '.join(done.output.split()), done.output
    assert not (tmp_path / 'run').exists()


def test_an_unknown_paper_is_refused_with_the_nearest_name() -> None:
    done = CliRunner().invoke(main, ['reproduce', 'fdlr'])
    assert done.exit_code == 2 and 'fdrl' in done.output


def test_settings_refuse_what_is_no_list() -> None:
    with pytest.raises(SettingError, match='records'):
        FdrlSettings(records='many')
