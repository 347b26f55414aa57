# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""SERQ's equations against direct ones, and its state."""

from dataclasses import replace

from fdrl_ros.errors import StoreError
from fdrl_ros.federation.key_authority.server_step import fed_avg, RoundSum
from fdrl_ros.learner.torch.flat_weights import flat, layout_of, load
from fdrl_ros.segmentation.clip import Clip
from fdrl_ros.segmentation.network.losses import segmentation_loss
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.sizes import SegmenterSettings
from fdrl_ros.segmentation.training.batches import as_input
from fdrl_ros.segmentation.training.serq import Serq, SerqState
from fdrl_ros.segmentation.training.settings import ServerSettings
import numpy as np
import pytest
import torch

SETTINGS = ServerSettings(steps=1, batch=2, rate=1e-3, frames=2, average=0.25)
PLAIN = SegmenterSettings('tiny', temporal=False, channels=False)
LAYOUT = layout_of(Segmenter(PLAIN))
START = flat(Segmenter(PLAIN), LAYOUT)


def clip() -> Clip:
    rng = np.random.default_rng(7)
    frames = rng.integers(0, 256, (2, 32, 32, 3)).astype(np.uint8)
    return Clip('synthetic', frames, rng.integers(0, 4, (2, 32, 32)).astype(np.uint8), 5.0)


def serq(settings: ServerSettings = SETTINGS) -> Serq:
    return Serq((Segmenter(PLAIN), Segmenter(PLAIN)), START, [clip()], settings, seed=3)


def given(round: int, state: bytes = b'', spread: float = 0.01) -> RoundSum:
    rng = np.random.default_rng(round)
    shared = np.arange(LAYOUT.n_parameters)
    return RoundSum(round, START, shared, rng.normal(0.0, spread, shared.size), state)


def features(weights: np.ndarray) -> torch.Tensor:
    model = Segmenter(PLAIN)
    load(model, LAYOUT, weights)
    with torch.no_grad():
        return model.features(as_input(clip().frames))


def close(one: object, other: object, most: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=most)


def test_the_average_of_features_moves_by_mu():
    first = SerqState.from_bytes(serq()(given(1)).state)
    close(first.average, features(fed_avg(given(1)).weights))
    second = SerqState.from_bytes(serq()(given(2, serq()(given(1)).state)).state)
    after = features(fed_avg(given(2)).weights)
    close(second.average, 0.75 * first.average + 0.25 * np.asarray(after))


def adam_step(parameters: list[torch.Tensor], loss: torch.Tensor) -> None:
    """Take the first step of Adam: the sign of each slope, but for its epsilon."""
    slopes = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for each, slope in zip(parameters, slopes, strict=True):
            each -= SETTINGS.rate * slope / (slope.abs() + 1e-8)


def test_both_models_take_the_steps_of_equations_11_and_12():
    round = given(1)
    made = serq()
    stepped = made(round)
    state = SerqState.from_bytes(stepped.state)
    weights = fed_avg(round).weights
    moving = features(weights)
    rng = np.random.default_rng([3, 1, 1])
    frames, labels = as_input(clip().frames), torch.from_numpy(clip().labels.astype(np.int64))
    chosen = rng.integers(2, size=2)
    pretrained = Segmenter(PLAIN)
    load(pretrained, LAYOUT, START)
    descriptor = torch.tensor(
        np.random.default_rng([3, 2]).normal(0.0, 0.02, moving.shape[1:]).astype(np.float32),
        requires_grad=True,
    )
    found = pretrained.features(frames[chosen])
    difference = found - descriptor - moving[chosen]
    eq_11 = segmentation_loss(pretrained.plain(found), labels[chosen])
    eq_11 = eq_11 + 0.3 * (difference**2).sum() / difference.numel()
    adam_step([*pretrained.parameters(), descriptor], eq_11)
    close(state.descriptor, descriptor.detach())
    close(state.weights, flat(pretrained, LAYOUT))
    chosen = rng.integers(2, size=2)
    model = Segmenter(PLAIN)
    load(model, LAYOUT, weights)
    found = model.features(frames[chosen])
    with torch.no_grad():
        target = pretrained.features(frames)[chosen] - descriptor
    difference = found - target
    eq_12 = segmentation_loss(model.plain(found), labels[chosen])
    eq_12 = eq_12 + 0.3 * (difference**2).sum() / difference.numel()
    adam_step(list(model.parameters()), eq_12)
    close(stepped.weights, flat(model, LAYOUT))
    close(made.losses, (eq_11.item(), eq_12.item()))


def test_a_step_depends_on_sum_and_state_alone():
    made = serq()
    first = made(given(1))
    second = made(given(2, first.state))
    again = serq()(given(2, first.state))
    assert np.array_equal(second.weights, again.weights) and second.state == again.state
    other = serq()(given(2, serq()(given(1, spread=0.02)).state))
    assert not np.array_equal(other.weights, second.weights)


def test_the_server_s_own_queries_learn():
    personal = tuple(t.name for t in LAYOUT.tensors if '.attn.q.' in t.name)
    shared = LAYOUT.shared(personal)
    round = replace(given(1), shared=shared, average=np.zeros(shared.size))
    own = np.setdiff1d(np.arange(LAYOUT.n_parameters), shared)
    moved = serq()(round).weights[own] - START[own]
    assert np.count_nonzero(moved) > own.size / 2  # slopes of queries are small at first


@pytest.mark.parametrize('damage', ['cut', 'other frames', 'other model'])
def test_a_state_that_does_not_fit_is_refused(damage):
    state = serq()(given(1)).state
    if damage == 'cut':
        state = state[:-100]
    else:
        kept = SerqState.from_bytes(state)
        kept = (
            replace(kept, average=kept.average[:1])
            if damage == 'other frames'
            else replace(kept, weights=kept.weights[:-1])
        )
        state = kept.to_bytes()
    with pytest.raises(StoreError, match='state of SERQ'):
        serq()(given(2, state))
