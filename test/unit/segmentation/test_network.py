# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The segmenter's parts against direct formulas (Eq. 3, 4, 7, 8, 9), its shapes and refusals."""

import math

from fdrl_ros.errors import RecordsError, SettingError
from fdrl_ros.segmentation.network.channels import ChannelSelection
from fdrl_ros.segmentation.network.losses import segmentation_loss
from fdrl_ros.segmentation.network.personal import personal_tensors, shared_fraction
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.sizes import (
    SegmenterSettings,
    SIZES,
    SMALL_MAPS,
    WIDE_MAPS,
    Windows,
)
from fdrl_ros.segmentation.network.temporal import TemporalAttention
from fdrl_ros.surgery.render.parts import UNLABELLED
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
import torch

TEXT = 24
TINY = SegmenterSettings(text=TEXT)


def random(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def drawn(module, seed=3):
    """Give a module random weights, biases too."""
    with torch.no_grad():
        for number, each in enumerate(module.parameters()):
            each.copy_(0.5 * random(*each.shape, seed=(seed, number)))
    return module


def attended(module, maps):
    """
    Compute Eq. 3 and 4 directly: element by element, head by head.

    :param maps: (h, w, C) each, the oldest first.
    """
    windows, current = module.windows, maps[-1]
    high, wide, channels = current.shape
    heads, size = len(module.bias), windows.size
    width = channels // heads
    result = current.clone()
    pooled = []
    for pool, each in zip(module.pool, maps, strict=True):
        side = len(pool.weight)
        found = {}
        for row in range(math.ceil(high / side)):
            for column in range(math.ceil(wide / side)):
                token = pool.bias.expand(channels).clone()
                for i in range(side):
                    for j in range(side):
                        if side * row + i < high and side * column + j < wide:
                            token += pool.weight[i, j] * each[side * row + i, side * column + j]
                found[row, column] = token
        pooled.append(found)
    for top in range(0, high, size):
        for left in range(0, wide, size):
            context = []  # each token, or None outside of its map
            for pool, field, found in zip(windows.pooling, windows.fields, pooled, strict=True):
                # The field's first token is the one whose corner is nearest to the field's.
                row, column = (
                    math.floor((corner + (size - field) / 2) / pool + 0.5)
                    for corner in (top, left)
                )
                side = field // pool
                for i in range(side):
                    context += [found.get((row + i, column + j)) for j in range(side)]
            for i in range(size):
                for j in range(size):
                    if top + i >= high or left + j >= wide:
                        continue
                    for head in range(heads):
                        part = slice(width * head, width * (head + 1))
                        q = current[top + i, left + j, part] @ module.q.weight[head]
                        q = q + module.q.bias[head, 0]
                        scores, values = [], []
                        for number, token in enumerate(context):
                            if token is None:
                                continue
                            k = token[part] @ module.k.weight[head] + module.k.bias[head, 0]
                            v = token[part] @ module.v.weight[head] + module.v.bias[head, 0]
                            bias = module.bias[head, size * i + j, number]
                            scores.append((q @ k) / math.sqrt(width) + bias)
                            values.append(v)
                        weights = torch.stack(scores).softmax(0)
                        result[top + i, left + j, part] += weights @ torch.stack(values)
    return result


@pytest.mark.parametrize(
    ('windows', 'shape'),
    [
        (Windows(2, (2, 1), (4, 3)), (4, 6)),
        (Windows(3, (3, 2, 1), (9, 5, 3)), (7, 5)),  # neither windows nor squares fit
        (SMALL_MAPS, (4, 8)),
    ],
)
def test_temporal_attention_is_equations_3_and_4(windows, shape):
    module = drawn(TemporalAttention(6, 2, windows))
    maps = [random(2, *shape, 6, seed=number) for number in range(windows.maps)]
    with torch.no_grad():
        found = module(maps)
        for clip in range(2):
            expected = attended(module, [each[clip] for each in maps])
            torch.testing.assert_close(found[clip], expected, atol=1e-5, rtol=1e-5)


def test_maps_of_many_windows_are_gathered_in_parts_without_a_difference(monkeypatch):
    module = drawn(TemporalAttention(4, 2, SMALL_MAPS))
    maps = [random(2, 16, 12, 4, seed=number) for number in range(4)]
    with torch.no_grad():
        found = module(maps)
        monkeypatch.setattr('fdrl_ros.segmentation.network.temporal.TOGETHER', 5000)
        torch.testing.assert_close(module(maps), found, atol=1e-6, rtol=1e-6)


def test_the_papers_windows_hold_whole_tokens_and_bad_ones_are_refused():
    assert WIDE_MAPS.tokens == [7, 5, 3, 7] and SMALL_MAPS.tokens == [4, 6, 6, 6]
    with pytest.raises(SettingError, match='fields'):
        Windows(4, (4, 2), (16, 1))
    with pytest.raises(SettingError, match='windows'):
        Windows(4, (4, 2), (16,))


def test_channel_selection_is_equations_7_and_8():
    module = drawn(ChannelSelection(5, 3))
    tokens, text = random(2, 4, 6, 5), random(2, 3, seed=1)
    found = module(tokens, text)
    for clip in range(2):
        pooled = sum(tokens[clip, i, j] for i in range(4) for j in range(6)) / 24
        given = torch.cat([pooled, text[clip]])
        for channel in range(5):
            score = module.fc.weight[channel] @ given + module.fc.bias[channel]
            indicator = 1.0 / (1.0 + torch.exp(-score))
            old = tokens[clip, :, :, channel]
            torch.testing.assert_close(found[clip, :, :, channel], old + old * indicator)


def loss_by_pixels(logits, labels):
    """Compute Eq. 9 pixel by pixel."""
    entropy, pixels = 0.0, 0
    both, ours, theirs = ([0.0] * 4 for _ in range(3))
    for n, y, x in np.ndindex(*labels.shape):
        label = int(labels[n, y, x])
        if label == UNLABELLED:
            continue
        chances = np.exp(logits[n, :, y, x]) / np.exp(logits[n, :, y, x]).sum()
        entropy -= math.log(chances[label])
        pixels += 1
        for part in range(4):
            both[part] += chances[part] * (label == part)
            ours[part] += chances[part]
            theirs[part] += label == part
    dice = [(2 * both[i] + 1) / (ours[i] + theirs[i] + 1) for i in (1, 2, 3)]
    return entropy / max(pixels, 1) + 0.3 * (1 - sum(dice) / 3)


@given(st.integers(0, 10_000), st.floats(0.0, 1.0))
@settings(max_examples=25)
def test_the_loss_is_equation_9_over_labelled_pixels(seed, unlabelled):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2.0, size=(2, 4, 3, 5))
    labels = rng.integers(4, size=(2, 3, 5)).astype(np.uint8)
    labels[rng.random(labels.shape) < unlabelled] = UNLABELLED
    found = segmentation_loss(torch.from_numpy(logits), torch.from_numpy(labels))
    assert float(found) == pytest.approx(loss_by_pixels(logits, labels), rel=1e-9)


def test_unlabelled_pixels_have_no_gradient_and_nothing_labelled_costs_nothing():
    logits = random(1, 4, 4, 4).requires_grad_()
    labels = torch.full((1, 4, 4), UNLABELLED, dtype=torch.uint8)
    assert float(segmentation_loss(logits, labels).detach()) == 0.0
    labels[0, :2] = 2
    segmentation_loss(logits, labels).backward()
    assert logits.grad[0, :, :2].abs().min() > 0 and not logits.grad[0, :, 2:].any()


@pytest.mark.parametrize('temporal', [False, True])
@pytest.mark.parametrize('channels', [False, True])
def test_a_clip_and_its_features_give_the_same_logits(temporal, channels):
    segmenter = Segmenter(SegmenterSettings('tiny', temporal, channels, TEXT))
    clips, text = random(2, 4, 3, 64, 96).sigmoid(), random(2, TEXT, seed=1)
    with torch.no_grad():
        logits = segmenter(clips, text)
        features = segmenter.features(clips.flatten(0, 1)).unflatten(0, (2, 4))
        assert logits.shape == (2, 4, 64, 96) and features.shape == (2, 4, 128, 8, 12)
        torch.testing.assert_close(segmenter.segment(features, text), logits)
        changed = clips.clone()
        changed[:, 0] = 0.0
        assert torch.equal(segmenter(changed, text), logits) != temporal
        assert torch.equal(segmenter(clips, -text), logits) != channels
        plain = segmenter.plain(features[:, -1])
        assert torch.equal(plain, logits) == (not temporal and not channels)


def test_one_frame_stands_for_the_ones_that_are_missing():
    segmenter = Segmenter(TINY)
    frame, text = random(1, 1, 3, 32, 32).sigmoid(), random(1, TEXT)
    with torch.no_grad():
        four = segmenter(frame.expand(-1, 4, -1, -1, -1), text)
        torch.testing.assert_close(segmenter(frame, text), four)


def test_weights_hang_on_the_generator_alone_and_pytorchs_own_stays():
    before = torch.get_rng_state()
    one, same, other = (Segmenter(TINY, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    pairs = zip(one.parameters(), same.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(one.head.fc.weight, other.head.fc.weight)


def test_every_weight_learns():
    segmenter = Segmenter(TINY)
    clips, labels = random(1, 4, 3, 64, 64).sigmoid(), torch.ones(1, 64, 64, dtype=torch.uint8)
    segmentation_loss(segmenter(clips, random(1, TEXT)), labels).backward()
    idle = [
        name
        for name, each in segmenter.named_parameters()
        if each.grad is None or not each.grad.any()
    ]
    # A bias of keys moves all scores of a query alike, and a softmax takes no notice.
    assert all(name.endswith(('k.bias', 'attn.q.bias')) for name in idle)


@pytest.mark.parametrize(
    ('call', 'words'),
    [
        (lambda s: s.features(torch.rand(1, 3, 100, 128)), '100 x 128 pixels: .* multiples of 32'),
        (lambda s: s.features(torch.rand(1, 3, 0, 32)), '0 x 32 pixels'),
        (lambda s: s.features(torch.rand(1, 4, 32, 32)), r'expected \(N, 3, height, width\)'),
        (
            lambda s: s(torch.rand(1, 3, 32, 32), torch.rand(1, TEXT)),
            r'expected \(B, T, 3, H, W\)',
        ),
        (lambda s: s(torch.rand(1, 2, 3, 32, 32), torch.rand(1, TEXT)), 'expected .*4 or 1'),
        (lambda s: s(torch.rand(1, 4, 3, 32, 32), torch.rand(1, 512)), r'text .*\(1, 24\)'),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call, words):
    with pytest.raises(RecordsError, match=words):
        call(Segmenter(TINY))


def test_unknown_sizes_are_refused():
    with pytest.raises(SettingError, match='tiny, b0, b2'):
        SegmenterSettings('b9')
    with pytest.raises(SettingError, match='text'):
        SegmenterSettings(text=0)


def test_sizes_are_those_of_the_paper_and_tiny_has_about_0_7_million():
    def count(module):
        return sum(each.numel() for each in module.parameters())

    assert 600_000 < count(Segmenter(SegmenterSettings())) < 800_000
    for size, encoder in (('b0', 3_409_760), ('b2', 24_849_856)):
        assert count(Segmenter(SegmenterSettings(size)).encoder) == encoder
    # The paper's 12.69 of 19.71 MB (Table IX), if the channel network is private too.
    b0 = Segmenter(SegmenterSettings('b0'))
    assert shared_fraction(b0, 'queries+channels') < 0.65
    for segmenter in (b0, Segmenter(SegmenterSettings())):
        assert 0.94 < shared_fraction(segmenter, 'queries') < 0.98
        assert shared_fraction(segmenter, 'none') == 1.0


def test_personal_tensors_are_those_of_their_layers():
    segmenter = Segmenter(TINY)
    blocks = sum(SIZES['tiny'].encoder.depths)
    found = {which: personal_tensors(segmenter, which) for which in ('queries', 'keys', 'values')}
    for letter, names in zip('qkv', found.values(), strict=True):
        assert len(names) == 2 * blocks
        assert all(name.startswith('encoder.') and f'.attn.{letter}.' in name for name in names)
    both = {*personal_tensors(segmenter, 'keys+values')}
    assert both == {*found['keys'], *found['values']}
    assert personal_tensors(segmenter, 'none') == ()
    assert personal_tensors(segmenter, 'channels') == ('channels.fc.weight', 'channels.fc.bias')
    assert personal_tensors(segmenter, 'head') == ('head.fc.weight', 'head.fc.bias')
    assert len(personal_tensors(segmenter, 'decoder_queries')) == 2
    norms = [
        f'encoder.{name}'
        for name, module in segmenter.encoder.named_modules()
        if isinstance(module, torch.nn.LayerNorm)
    ]
    assert {name.rpartition('.')[0] for name in personal_tensors(segmenter, 'norm')} == {*norms}
    every = [name for name, _ in segmenter.named_parameters()]
    assert list(personal_tensors(segmenter, 'all')) == every
    for wrong in ('query', '', 'none+queries'):
        with pytest.raises(SettingError, match='decoder_queries'):
            personal_tensors(segmenter, wrong)
