# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The compiled arithmetic gives what NumPy gives, and refuses what would read beyond an array."""

from dataclasses import replace
import importlib.util
from pathlib import Path
import shutil
import sys
from types import SimpleNamespace

import fdrl_ros
from fdrl_ros.errors import PrivacyError, SettingError
from fdrl_ros.learner.gradient import DuelingGradients
from fdrl_ros.learner.losses import LOSSES
from fdrl_ros.learner.network import TrainedWeights
from fdrl_ros.learner.network_kernel import NetworkKernel
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy import mechanism
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.runtime import kernels
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.batches import batch_of, transitions_of

pytestmark = pytest.mark.skipif(
    not kernels.built(), reason='the compiled arithmetic was not built here (native/build.py)'
)
SIZES = strategies.integers(1, 40)
SOURCE = NoiseSource.seeded(4)


def in_numpy(call):
    """Compute something without the compiled arithmetic."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, 'lib', None)
        return call()


@settings(max_examples=60, deadline=None)
@given(
    seed=strategies.integers(0, 2**20),
    states=SIZES,
    actions=strategies.integers(1, 20),
    hidden=strategies.lists(SIZES, max_size=3),
    units=strategies.integers(1, 9),
    transitions=strategies.integers(1, 9),
    loss=strategies.sampled_from(['huber', 'squared']),
    learned=strategies.sampled_from([*((each, 0.0) for each in LOSSES), ('', 0.7)]),
    weighted=strategies.booleans(),
    data=strategies.data(),
)
def test_clipped_sums_and_errors_are_those_of_numpy(
    seed, states, actions, hidden, units, transitions, loss, learned, weighted, data
):
    rng, shape = np.random.default_rng(seed), NetworkShape(states, actions, tuple(hidden))
    names = [each.name for each in shape.layout.tensors]
    frozen = ','.join(data.draw(strategies.lists(strategies.sampled_from(names), max_size=3)))
    algorithm, alpha = learned
    learner = LearnerSettings(algorithm=algorithm, loss=loss, conservative=alpha, frozen=frozen)
    weights, target = shape.draw(rng), shape.draw(rng)
    batch = batch_of(rng, shape, units, transitions, weighted=weighted)

    def both():
        dqn = DuelingGradients(shape, learner)
        return (
            dqn.clipped_sum(weights, target, batch, 0.5),
            dqn.mean(weights, target, batch),
            dqn.errors(weights, target, batch),
        )

    for found, expected in zip(both(), in_numpy(both), strict=True):
        np.testing.assert_allclose(found, expected, atol=3e-6 * max(1.0, np.abs(expected).max()))


def test_slopes_can_be_looked_at_and_changed():
    """An audit puts canaries there."""
    rng, shape = np.random.default_rng(1), NetworkShape(5, 3, (7, 20))
    dqn, weights = DuelingGradients(shape), shape.draw(rng)
    apart, batch = dqn.layered(weights), batch_of(rng, shape, 3, 2)
    trace = dqn.trace(apart, apart, batch, 1.0)
    made = trace.layers
    expected = in_numpy(lambda: DuelingGradients(shape).trace(apart, apart, batch, 1.0)).layers
    assert len(made) == len(expected) == 3
    for found, numpys in zip(made, expected, strict=True):
        np.testing.assert_allclose(found.inputs, numpys.inputs, atol=1e-6)
        np.testing.assert_allclose(found.outputs, numpys.outputs, atol=1e-6)
        found.outputs[...] = 0.0
    assert not trace.clipped_sum(3, 2, 1.0).any()


def test_saturated_networks_are_those_of_numpy():
    rng, shape = np.random.default_rng(2), NetworkShape(5, 3, (16,))
    weights = (shape.draw(rng) * 30.0).astype(np.float32)
    batch = batch_of(rng, shape, 12, 1)

    def slopes():
        dqn = DuelingGradients(shape)
        return dqn.trace(dqn.layered(weights), dqn.layered(weights), batch, 1.0).layers[-1].inputs

    np.testing.assert_allclose(slopes(), in_numpy(slopes), atol=5e-7)


@pytest.mark.parametrize('pairs', [1, 7, 8, 9, 2370])
def test_noise_is_the_formula_of_box_and_muller(pairs):
    words = SOURCE.uniform_words('gradient', 3, 5, 2 * pairs)
    radius = np.sqrt(-2.0 * np.log((words[:pairs] + 0.5) * 2.0**-64))
    angle = words[pairs:].astype(np.int64) * (2.0 * np.pi * 2.0**-64)
    expected = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))
    np.testing.assert_allclose(kernels.gaussian(words), expected, rtol=0, atol=1e-14)


def test_extreme_words_make_finite_draws():
    """The least and the largest radius, and angles at each quarter turn and on either side."""
    eighths = (np.arange(-4, 4, dtype=np.int64) << 61)[:, None] + np.array([-1, 0, 1])
    angles = eighths.reshape(-1).astype(np.uint64)
    for radius, expected in ((0, 9.5), (2**64 - 1, 0.0), (2**63, 1.1774100225154747)):
        radii = np.full(len(angles), radius, np.uint64)
        draws = kernels.gaussian(np.concatenate((radii, angles))).reshape(2, -1)
        np.testing.assert_allclose(np.hypot(*draws), expected, atol=0.01 if not radius else 1e-9)
        if expected:
            turns = np.exp(2j * np.pi * angles.astype(np.int64) / 2.0**64) * np.hypot(*draws)
            np.testing.assert_allclose(draws[0] + 1j * draws[1], turns, atol=1e-14)


@given(
    n_units=strategies.integers(1, 2000),
    q=strategies.floats(1e-4, 0.999),
    step=strategies.integers(0, 2**30),
)
@settings(max_examples=100, deadline=None)
def test_the_same_units_join_as_in_numpy(n_units, q, step):
    def joined():
        return mechanism.poisson_sample(n_units, q, SOURCE, 1, step)

    np.testing.assert_array_equal(joined(), in_numpy(joined))


def test_the_noisy_mean_is_rounded_and_added_as_written_bit_for_bit():
    rng = np.random.default_rng(3)
    sums, noise = rng.normal(size=(2, 3, 1001))

    def mean():
        return mechanism.noisy_mean(
            sums, noise_multiplier=1.3, clip_norm=0.4, expected_batch=13.0, noise=noise
        )

    grid = mechanism.grid_of(1.3, 0.4, 1001)
    steps = np.rint(sums / grid) + np.rint(noise * (1.3 * 0.4 / grid))
    np.testing.assert_array_equal(mean(), steps * (grid / 13.0))
    noise[1, 4] = np.inf
    with pytest.raises(PrivacyError, match='not finite'):
        mean()


def test_more_layers_than_are_compiled_for_are_computed_in_numpy():
    shape = NetworkShape(2, 2, (3,) * 20)
    rng, dqn = np.random.default_rng(9), DuelingGradients(shape)
    weights = shape.draw(rng)
    found = dqn.clipped_sum(weights, weights, batch_of(rng, shape, 2, 2), 1.0)
    assert found.shape == (shape.n_parameters,)


@pytest.mark.parametrize('transitions', [1, 3])
@pytest.mark.parametrize('weighted', [False, True])
def test_drawn_transitions_are_summed_as_those_that_were_taken_out(transitions, weighted):
    rng, shape = np.random.default_rng(10), NetworkShape(4, 3, (8, 5))
    everyone, dqn = transitions_of(rng, shape, 50), DuelingGradients(shape)
    weights, target = shape.draw(rng), shape.draw(rng)
    index = rng.integers(50, size=(7, transitions))
    scales = rng.uniform(0.1, 1.0, index.shape).astype(np.float32) if weighted else None
    drawn = everyone.at(index, scales)
    taken = everyone.at(index, scales).mapped(np.copy)
    np.testing.assert_array_equal(
        dqn.clipped_sum(weights, target, drawn, 0.3), dqn.clipped_sum(weights, target, taken, 0.3)
    )


@pytest.mark.parametrize(
    'changes, words',
    [
        *(({'actions': action}, 'actions') for action in (-1, 3, 2**40)),
        *(({'drawn action': action}, 'actions') for action in (-1, 3, 2**40)),
        *(({'drawn row': row}, 'index') for row in (-1, 50, 2**40)),
        ({'shorter': 'states'}, 'states'),
        ({'shorter': 'rewards'}, 'rewards'),
        ({'shorter': 'weights'}, 'weights'),
        ({'shorter parameters': 1}, 'weights'),
        ({'units': 4}, 'units'),
    ],
    ids=str,
)
def test_what_would_be_read_beyond_an_array_is_refused(changes, words):
    rng, shape = np.random.default_rng(6), NetworkShape(4, 3, (8,))
    kernel = NetworkKernel(shape, LearnerSettings(), TrainedWeights.of(shape))
    weights = shape.draw(rng)
    batch, everyone = batch_of(rng, shape, 3, 2, weighted=True), transitions_of(rng, shape, 50)
    ((what, value),) = changes.items()
    index = np.array([[3], [9]])
    if what == 'actions':
        batch.actions[2, 1] = value
    elif what == 'drawn action':
        everyone.actions[9] = value
    elif what == 'drawn row':
        index[1] = value
    elif what == 'shorter':
        batch = replace(batch, **{value: getattr(batch, value)[:-1]})
    parameters = weights[: -value if what == 'shorter parameters' else None]
    with pytest.raises(SettingError, match=words):
        if what.startswith('drawn'):
            kernel.drawn_sum(parameters, weights, everyone.table, index, None, 1.0)
        trace = kernel.trace(parameters, weights, batch, 1.0)
        trace.clipped_sum(value if what == 'units' else 3, 2, 1.0)


def test_a_module_built_from_other_sources_than_those_beside_it_is_not_used(tmp_path):
    root = Path(__file__).resolve().parents[3]
    copied = tmp_path / 'fdrl_ros' / 'runtime' / 'kernels.py'
    copied.parent.mkdir(parents=True)
    shutil.copy(kernels.__file__, copied)

    def loaded():
        spec = importlib.util.spec_from_file_location('fdrl_ros.runtime.kernels', copied)
        again = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(again)
        return again

    assert loaded().built()  # installed without any sources
    shutil.copytree(root / 'native', tmp_path / 'native')
    assert loaded().built()
    for name in ('contact.c', 'layout.h', 'build.py'):
        source = tmp_path / 'native' / name
        before = source.read_text()
        source.write_text(before + '\n')
        assert not loaded().built()
        with pytest.raises(PrivacyError, match='other sources.*native/build.py'):
            loaded().check_built()
        source.write_text(before)
    source.write_text('')  # other sources, but not those that a symlink install leads to
    copied.unlink()
    copied.symlink_to(root / 'fdrl_ros' / 'runtime' / 'kernels.py')
    assert loaded().built()


def test_a_module_of_another_version_is_not_used(monkeypatch):
    monkeypatch.setitem(sys.modules, 'fdrl_ros._kernels', SimpleNamespace(ffi=None, lib=object()))
    monkeypatch.delattr(fdrl_ros, '_kernels', raising=False)
    again = importlib.util.module_from_spec(kernels.__spec__)
    kernels.__spec__.loader.exec_module(again)
    assert not again.built() and kernels.built()
    assert 'another version' in again.missing()
