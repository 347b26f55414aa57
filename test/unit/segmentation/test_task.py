# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The task `instruments`: who has which clips, what is seen, what counts, what is personal."""

from contextlib import closing
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

from fdrl_ros.deployment.parties.key_authority import server_step
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import PolicyError, RecordsError, SettingError, TaskError
from fdrl_ros.federation.key_authority.server_step import fed_avg, RoundSum
from fdrl_ros.learner.forecast import RoundCosts
from fdrl_ros.learner.privacy_cost import RecordCounts
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.torch.flat_weights import flat, layout_of
from fdrl_ros.policy.layout import named
from fdrl_ros.segmentation.clip import history
from fdrl_ros.segmentation.network.losses import CrossEntropyAndDice, segmentation_loss
from fdrl_ros.segmentation.network.personal import personal_tensors
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.sizes import SegmenterSettings
from fdrl_ros.segmentation.observation import observation_size, packed, pixels_of, STEP
from fdrl_ros.segmentation.scenes import site_clip
from fdrl_ros.segmentation.task import clip_of, FROZEN, InstrumentsTask, TUNED, VideoSettings
from fdrl_ros.segmentation.text import text_vectors
from fdrl_ros.segmentation.training.serq import Serq
from fdrl_ros.surgery.render.parts import PARTS, SHAFT
import numpy as np
import pytest
import torch

TASK = InstrumentsTask()
WORLD = VideoSettings(pixels=32, frames=3, serq_steps=1, serq_frames=4)
CHOSEN = SimpleNamespace(hospitals=3, heterogeneity=0.8, seed=4, procedures='')
SMALL = {
    'federation': {'task': 'instruments'},
    'world': {'pixels': 32, 'frames': 3, 'serq_steps': 1, 'serq_frames': 4},
    'collection': {'patients': 2},
}


@cache
def plan(**learner: object) -> Plan:
    return Plan({**SMALL, 'learner': learner}).checked()


def operated(patient, choose, world=WORLD):
    with closing(TASK.make_env(world)) as env:
        return TASK.operate(env, choose, patient, np.random.default_rng(0))


def test_hospitals_are_sites_and_no_clip_is_in_two_places():
    populations = [TASK.population(CHOSEN, each) for each in (0, 1, 2, 3, None)]
    assert [(each.hospital, each.public) for each in populations[2:]] == [
        (2, False),
        (3, False),
        (0, True),
    ]
    drawn = [
        each.patient(index, split)
        for each in populations
        for split in ('train', 'test')
        for index in (0, 1, 10**6)
    ]
    assert drawn[1] == TASK.population(CHOSEN, 0).patient(1)
    assert [each.site for each in drawn[::6]] == ['A', 'B', 'C', 'D', 'synthetic']
    assert drawn[0].name == 'hospital_1/train/0' and drawn[-3].name == 'public/test/0'
    clips = {(each.site, each.number) for each in drawn}
    assert len(clips) == len({each.name for each in drawn}) == len(drawn)
    one = site_clip('B', 4, 1, frames=3, size=32)
    assert np.array_equal(clip_of(TASK.population(CHOSEN, 1).patient(1), WORLD).frames, one.frames)
    other = replace(TASK.population(CHOSEN, 1), seed=5).patient(1)
    assert not np.array_equal(clip_of(other, WORLD).frames, one.frames)


def test_the_module_turns_an_observation_back_into_frames_and_text():
    patient = TASK.population(CHOSEN, 2).patient(0)
    episode = operated(patient, TASK.guide(patient, WORLD))
    clip, module = clip_of(patient, WORLD), plan().network.build(np.random.default_rng(0))
    assert episode.states.shape == (4, TASK.spec(WORLD).size) and episode.states.dtype == np.uint8
    frames, text = module.unpacked(torch.from_numpy(episode.states[:3]) / 255.0)
    expected = np.moveaxis(clip.frames[history(np.arange(3))], -1, 2)
    np.testing.assert_array_equal(np.rint(frames.numpy() * 255.0), expected)
    for row in text.numpy():
        np.testing.assert_allclose(row, text_vectors()['C'], rtol=0, atol=STEP / 2.0 + 1e-6)


@pytest.mark.parametrize('size', [0, 511, 512, observation_size(32) + 1])
def test_what_is_no_observation_is_refused(size):
    assert pixels_of(observation_size(64)) == 64
    with pytest.raises(RecordsError, match=f'of {size} bytes'):
        pixels_of(size)


def test_a_text_vector_that_no_bytes_hold_is_refused():
    frames = np.zeros((4, 32, 32, 3), np.uint8)
    with pytest.raises(RecordsError, match='text vector with 0.2'):
        packed(frames, np.full(512, 0.2, np.float32))


def test_reward_and_success_are_those_of_dice_written_out():
    patient = TASK.population(CHOSEN, 0).patient(3)
    clip, rng = clip_of(patient, WORLD), np.random.default_rng(2)
    guessed = np.where(rng.random(clip.labels.shape) < 0.4, SHAFT, clip.labels).astype(np.uint8)
    following = iter(guessed)
    episode = operated(patient, lambda seen: next(following))
    dice = np.full((3, 3), np.nan)
    for frame in range(3):
        for part in range(1, len(PARTS)):
            one, two = guessed[frame] == part, clip.labels[frame] == part
            if one.sum() + two.sum():
                dice[frame, part - 1] = 2.0 * (one & two).sum() / (one.sum() + two.sum())
    np.testing.assert_allclose(episode.rewards, np.nanmean(dice, axis=1), rtol=1e-6)
    mean = np.nanmean(np.nanmean(dice, axis=0))
    measured = TASK.measure(episode, WORLD)
    assert measured['dice'] == pytest.approx(mean)
    assert measured['dice_shaft'] == pytest.approx(np.nanmean(dice[:, 0]))
    np.testing.assert_array_equal(episode.actions, guessed.reshape(3, -1))
    assert episode.actions.dtype == np.uint8
    for least, reached in ((mean - 1e-6, True), (mean + 1e-6, False)):
        world = replace(WORLD, success=float(least))
        replay = iter(guessed).__next__
        assert operated(patient, lambda seen, replay=replay: replay(), world).success == reached


def test_the_guide_knows_the_labels_of_every_frame():
    patient = TASK.population(CHOSEN, 1).patient(0, 'test')
    episode = operated(patient, TASK.guide(patient, WORLD))
    assert episode.success and episode.terminated
    np.testing.assert_array_equal(episode.rewards, 1.0)
    drawn = np.random.default_rng(1)
    assert not operated(patient, lambda seen: TASK.spec(WORLD).draw_action(drawn)).success


def test_labels_of_another_number_of_pixels_are_refused():
    with pytest.raises(TaskError, match='1 labels: expected one for each of 1024 pixels'):
        operated(TASK.population(CHOSEN, 0).patient(0), lambda seen: 1)


def test_a_fifth_hospital_and_odd_frames_are_refused():
    with pytest.raises(SettingError, match=r'federation\.hospitals.*at most 4.*A, B, C, D'):
        Plan({**SMALL, 'federation': {'task': 'instruments', 'hospitals': 5}}).checked()
    with pytest.raises(SettingError, match=r'world\.pixels'):
        Plan({**SMALL, 'world': {'pixels': 48}}).checked()
    with pytest.raises(SettingError, match=r'federation\.procedures'):
        plan().changed({'federation': {'procedures': 'palpation'}})
    with pytest.raises(PolicyError, match=r'double_dqn.*at each of 1024 places'):
        plan().changed({'learner': {'algorithm': 'double_dqn'}})


def test_names_with_a_star_are_the_groups_of_the_paper():
    segmenter, layout = Segmenter(SegmenterSettings('tiny')), plan(frozen='').network.layout
    queries = set(personal_tensors(segmenter, 'queries'))
    kept = layout.shared(['encoder.*.q'])
    assert len(kept) == sum(t.size for t in layout.tensors if t.name not in queries)
    tuned = plan().network.layout
    wanted = queries | set(personal_tensors(segmenter, 'head'))
    assert {each.name for each in tuned.tensors[tuned.frozen :]} == wanted
    assert set(plan().learner.frozen_tensors) == {each.strip() for each in FROZEN.split(',')}
    assert {each.name for each in named(layout.tensors, TUNED)} == wanted


def test_the_defaults_keep_their_budget():
    whole = Plan({'federation': {'task': 'instruments'}}).checked()
    size = RecordCounts(whole.collection.patients, whole.collection.patients)
    RoundCosts(whole.learner, whole.privacy, whole.home, size).check(whole.rounds.rounds)


def test_first_weights_are_drawn_by_the_seed():
    network = plan(frozen='').network
    first, again, other = (network.draw(np.random.default_rng(each)) for each in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.3


@pytest.mark.parametrize('frozen', ['', FROZEN])
def test_the_server_s_step_is_serq_on_public_clips(frozen):
    given_plan = plan(frozen=frozen)
    network, rng = given_plan.network, np.random.default_rng(3)
    start = network.draw(rng)
    shared = network.layout.shared(['encoder.*.q'])
    average = rng.normal(0.0, 0.01, shared.size)
    step = server_step(given_plan, start)
    first = step(RoundSum(1, start, shared, average))
    second = step(RoundSum(2, first.weights, shared, average, first.state))

    module = network.build(rng)
    own = layout_of(module)
    public = TASK.population(given_plan.federation, None)
    clips = [clip_of(public.patient(number), given_plan.world) for number in range(2)]
    models = network.build(rng), module
    direct = Serq(models, own.reordered(start, network.layout), clips, WORLD.server, 1)
    weights, state, before = start, b'', start
    for round in (1, 2):
        summed = fed_avg(RoundSum(round, before, shared, average)).weights
        ordered = own.reordered(summed, network.layout)
        everything = np.arange(own.n_parameters)
        nothing = np.zeros(own.n_parameters)
        found = direct(RoundSum(round, ordered, everything, nothing, state))
        state, weights = found.state, network.layout.reordered(found.weights, own)
        weights[: network.layout.start] = start[: network.layout.start]
        before = weights
    np.testing.assert_array_equal(second.weights, weights)
    assert second.state == state
    assert not np.array_equal(weights[network.layout.start :], summed[network.layout.start :])


def test_without_serq_the_server_s_step_is_fed_avg_and_others_need_a_segmenter(tmp_path):
    assert server_step(plan().changed({'world': {'serq': False}}), np.zeros(1)) is fed_avg
    assert server_step(Plan({'federation': {'task': 'cartpole'}}).checked(), None) is fed_avg
    file = tmp_path / 'pixels.py'
    file.write_text(
        'from torch import nn\n'
        'class Pixels(nn.Linear):\n'
        '    def __init__(self, shape, outputs):\n'
        '        super().__init__(*shape, outputs * 1024)\n'
        '    def forward(self, seen):\n'
        '        return super().forward(seen).unflatten(1, (-1, 1024))\n'
    )
    other = plan(network=f'{file}:Pixels', frozen='')
    with pytest.raises(PolicyError, match='SERQ trains a segmenter, or world.serq false'):
        server_step(other, np.zeros(other.network.n_parameters, np.float32))


def test_collected_targets_are_labels_in_bytes_and_nothing_is_tried_out():
    given = plan()
    collector = HospitalSimulator(TASK, WORLD, given.collection)
    records = collector.collect(TASK.population(CHOSEN, 1))
    assert records.actions.dtype == np.uint8 and records.actions.shape == (6, 1024)
    labels = clip_of(TASK.population(CHOSEN, 1).patient(1), WORLD).labels
    np.testing.assert_array_equal(records.actions[3:], labels.reshape(3, -1))
    tried = replace(given.collection, exploration=0.1)
    with pytest.raises(SettingError, match='exploration.*1024 places'):
        replace(collector, settings=tried).collect(TASK.population(CHOSEN, 1))


def test_a_network_of_a_plan_scores_what_the_segmenter_does():
    network = plan(frozen='').network
    weights = network.draw(np.random.default_rng(1))
    segmenter = network.build(np.random.default_rng(0))
    network.load(segmenter, weights)
    assert np.array_equal(flat(segmenter, network.layout), weights)
    patient = TASK.population(CHOSEN, 0).patient(0)
    seen = operated(patient, TASK.guide(patient, WORLD)).states[2]
    frames, text = segmenter.unpacked(torch.from_numpy(seen[None]) / 255.0)
    with torch.no_grad():
        logits = Segmenter.forward(segmenter.eval(), frames, text)[0]
    np.testing.assert_array_equal(network.policy(weights)(seen), logits.argmax(0))


def test_the_loss_of_a_plan_is_that_of_single_pictures():
    drawn = torch.Generator().manual_seed(3)
    scores = torch.randn((2, 3, 4, 16), generator=drawn)
    labels = torch.randint(0, 4, (2, 3, 16), generator=drawn)
    networks = SimpleNamespace(trained=lambda observations: scores)
    batch = SimpleNamespace(observations=None, actions=labels, rewards=torch.zeros(2, 3))
    found = CrossEntropyAndDice(LearnerSettings(kind='torch')).losses(networks, batch)
    for unit in range(2):
        for step in range(3):
            one = segmentation_loss(
                scores[unit, step].reshape(1, 4, 4, 4), labels[unit, step].reshape(1, 4, 4)
            )
            assert found[unit, step] == pytest.approx(float(one), rel=1e-6)
    batch.actions = labels[..., :9]
    with pytest.raises(PolicyError, match='labels of 9 pixels'):
        CrossEntropyAndDice(LearnerSettings(kind='torch')).losses(networks, batch)
