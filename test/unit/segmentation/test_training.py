# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hospitals' training of the segmenter, alone and over the protocol."""

from dataclasses import replace
from itertools import combinations

from fdrl_ros.errors import RecordsError, StoreError, TrainingStopped
from fdrl_ros.federation.protocol.encoding import encode
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.learner.torch.flat_weights import flat, layout_of
from fdrl_ros.segmentation.clip import Clip, history
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.sizes import SegmenterSettings
from fdrl_ros.segmentation.readers import video
from fdrl_ros.segmentation.readers.formats import open_videos
from fdrl_ros.segmentation.training import run
from fdrl_ros.segmentation.training.batches import as_input, Sampler
from fdrl_ros.segmentation.training.checkpoint import Checkpoint
from fdrl_ros.segmentation.training.methods import METHODS
from fdrl_ros.segmentation.training.run import MeasuredDriver, train, VideoSites
from fdrl_ros.segmentation.training.settings import Schedule, ServerSettings, SiteSettings
from fdrl_ros.segmentation.training.site_training import SiteTraining, update_limit
from fdrl_ros.surgery.render.parts import JAW, SHAFT, UNLABELLED
import numpy as np
import pytest
from support import video_trees

SITE = SiteSettings(steps=2, batch=2)
SCHEDULE = Schedule(2, 1, SITE, ServerSettings(steps=1, frames=3))


def clip(seed: int, frames: int = 5, size: int = 32) -> Clip:
    """Return a clip of a bright shaft with a red jaw that moves over noise."""
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 60, (frames, size, size, 3)).astype(np.uint8)
    labels = np.zeros((frames, size, size), np.uint8)
    for at in range(frames):
        row = 4 + 2 * at
        labels[at, row : row + 6, : size // 2], labels[at, row : row + 6, size // 2 :] = SHAFT, JAW
        pictures[at][labels[at] == SHAFT] = 200
        pictures[at][labels[at] == JAW] = (220, 40, 40)
    return Clip(f'clip_{seed}', pictures, labels, 5.0)


def sites() -> VideoSites:
    names = ('A', 'B', 'C')
    rng = np.random.default_rng(1)
    vectors = {name: rng.normal(size=512).astype(np.float32) for name in names}
    training = {name: [clip(number)] for number, name in enumerate(names)}
    return VideoSites(training, [clip(9)], {'text': vectors})


def test_history_repeats_the_first_frame():
    assert history(0).tolist() == [0, 0, 0, 0]
    assert history([2, 7]).tolist() == [[0, 0, 1, 2], [4, 5, 6, 7]]
    assert history(3, 1).tolist() == [3]


def test_a_batch_without_augmentation_is_frames_and_labels_as_they_are():
    still = replace(SITE, rotation=0.0, scale=0.0)
    one = clip(1)
    batch = Sampler([one], still, 4).draw(np.random.default_rng(4))
    newest = np.random.default_rng(4).integers(5, size=2)
    expected = as_input(one.frames[history(newest)])
    np.testing.assert_allclose(batch.frames, expected, rtol=0, atol=1e-5)
    assert np.array_equal(batch.labels, one.labels[newest])


def test_frames_are_drawn_evenly_from_all_clips_as_stated():
    still = replace(SITE, batch=50, rotation=0.0, scale=0.0)
    clips = [clip(1), clip(2, frames=9), clip(3, frames=2)]
    every = [(each, at) for each in clips for at in range(len(each.frames))]
    batch = Sampler(clips, still, 4).draw(np.random.default_rng(4))
    drawn = np.random.default_rng(4).integers(len(every), size=50)
    assert len(set(drawn.tolist())) == len(every)
    for place, number in enumerate(drawn):
        one, newest = every[number]
        assert np.array_equal(batch.labels[place], one.labels[newest])
        expected = as_input(one.frames[history(newest)])
        np.testing.assert_allclose(batch.frames[place], expected, rtol=0, atol=1e-5)


def test_frames_without_a_labelled_pixel_are_history_alone():
    still = replace(SITE, batch=40, rotation=0.0, scale=0.0)
    one, none = clip(1), clip(2)
    labels = np.full_like(one.labels, UNLABELLED)
    none = replace(none, labels=labels)
    labels = labels.copy()
    labels[2, 3, 4], labels[4] = JAW, one.labels[4]  # a single pixel is enough
    one = replace(one, labels=labels)
    batch = Sampler([none, one], still, 4).draw(np.random.default_rng(4))
    places = np.random.default_rng(4).integers(2, size=40)
    for place, newest in enumerate(np.array([2, 4])[places]):
        assert np.array_equal(batch.labels[place], labels[newest])
        expected = as_input(one.frames[history(newest)])
        np.testing.assert_allclose(batch.frames[place], expected, rtol=0, atol=1e-5)
    with pytest.raises(RecordsError, match='labelled frame'):
        Sampler([none], still, 4)


def test_of_a_video_in_files_only_the_drawn_history_is_read(tmp_path, monkeypatch):
    video_trees.sar_rarp50(tmp_path)  # of the frames 0 to 20, 0, 10 and 20 have masks
    clips = open_videos(tmp_path, split='training', rate=10.0)
    still = replace(SITE, batch=1, rotation=0.0, scale=0.0)
    sampler, whole = Sampler(clips, still, 4), clips[0]
    loaded, load = [], video._load

    def counting(path):
        loaded.append((path.parent.name, int(path.stem) // 6))
        return load(path)

    monkeypatch.setattr(video, '_load', counting)
    seen, rng = set(), np.random.default_rng(4)
    for _ in range(10):
        batch = sampler.draw(rng)
        newest = max(number for _, number in loaded)
        seen.add(newest)
        assert {number for folder, number in loaded if folder == 'rgb'} == {*history(newest)}
        assert np.array_equal(batch.labels[0], whole.labels[newest])
        expected = as_input(whole.frames[history(newest)])
        np.testing.assert_allclose(batch.frames[0], expected, rtol=0, atol=1e-5)
        loaded.clear()
    assert seen == {0, 10, 20}


def test_augmentation_moves_frames_and_labels_alike_and_knows_what_is_outside():
    one = clip(1, size=64)
    batch = Sampler([one], replace(SITE, batch=20, rotation=40.0, scale=0.4), 4).draw(
        np.random.default_rng(4)
    )
    red = (batch.frames[:, -1, 0] > 0.7) & (batch.frames[:, -1, 1] < 0.3)
    jaw = batch.labels == JAW
    outside = batch.labels == UNLABELLED
    assert outside.any() and not outside.all()
    agree = (red & jaw).sum() / ((red | jaw) & ~outside).sum()
    assert agree > 0.8
    assert len({int(each.sum()) for each in outside}) > 5  # each clip by its own


def test_clips_that_cannot_be_trained_on_are_refused():
    with pytest.raises(RecordsError, match='no clip'):
        Sampler([], SITE, 4)
    with pytest.raises(RecordsError, match='one size'):
        Sampler([clip(1), clip(2, size=64)], SITE, 4)


@pytest.mark.parametrize('temporal', [False, True])
def test_a_site_s_training_is_a_function_and_lowers_the_loss(temporal):
    settings = SegmenterSettings('tiny', temporal=temporal, channels=temporal)
    text = np.ones(512, np.float32)
    start = flat(Segmenter(settings), layout_of(Segmenter(settings)))

    def training() -> SiteTraining:
        return SiteTraining([clip(1)], Segmenter(settings), text, replace(SITE, steps=12), (5,))

    one = training()
    first = one(start, 1)
    before = one.loss
    assert np.array_equal(training()(start, 1), first)
    assert not np.array_equal(training()(start, 2), first)
    one(first, 2)
    assert one.loss < before


@pytest.mark.parametrize('steps', [1, 7])
def test_no_weight_moves_beyond_the_limit_of_a_round(steps):
    settings = SegmenterSettings('tiny', temporal=False, channels=False)
    start = flat(Segmenter(settings), layout_of(Segmenter(settings)))
    site = replace(SITE, steps=steps, rate=0.01)
    text = np.ones(512, np.float32)
    after = SiteTraining([clip(1)], Segmenter(settings), text, site, (5,))(start, 1)
    farthest = float(np.abs(after - start).max())
    assert farthest <= update_limit(site)
    if steps == 1:  # the first step of Adam has the length of its rate
        assert farthest > 0.9 * update_limit(site)


def test_the_federation_s_model_is_the_mean_of_what_sites_train():
    given, method = sites(), METHODS['fedavg']
    one = replace(SCHEDULE, rounds=1)
    federated = train(method, 'tiny', given, one, 1, lambda done, who: None)
    alone = train(METHODS['local'], 'tiny', given, one, 1, lambda done, who: None)
    mean = np.mean([alone.weights[name] for name in given.training], axis=0)
    np.testing.assert_allclose(federated.weights['A'], mean, rtol=0, atol=2e-5)
    assert federated.upload[1] == 4 * mean.size < federated.upload[0]


@pytest.mark.parametrize('name', ['fedst', 'local'])
def test_training_ends_as_soon_as_somebody_stops_it(name):
    told = []

    def stop(done: int, who: str) -> None:
        told.append(done)
        if who != 'synthetic':
            raise TrainingStopped('enough')

    with pytest.raises(TrainingStopped, match='enough'):
        train(METHODS[name], 'tiny', sites(), SCHEDULE, 1, stop)
    assert told == [*range(1, SCHEDULE.pretraining + 1), told[-1]]


@pytest.mark.parametrize('name', ['fedst', 'local', 'pooled'])
def test_training_that_is_interrupted_goes_on_to_the_same_models(name, tmp_path):
    method, given = METHODS[name], sites()
    schedule, file = replace(SCHEDULE, rounds=3), tmp_path / 'training.npz'
    told: list[tuple[int, str]] = []

    def until(limit: int):
        def stop(done: int, who: str) -> None:
            told.append((done, who))
            if done > limit:
                raise TrainingStopped('enough')

        return stop

    total = run.steps_of(method, len(given.training), schedule)
    whole = train(method, 'tiny', given, schedule, 1, until(total))
    assert told[-1][0] == total
    kept = []
    for limit in (0, total // 2, total - 1):  # before, in the middle and near the end
        with pytest.raises(TrainingStopped):
            train(method, 'tiny', given, schedule, 1, until(limit), file)
        kept.append(Checkpoint.read(file))
    assert kept[0] is None and 0 < kept[1].rounds < kept[2].rounds
    told.clear()
    found = train(method, 'tiny', given, schedule, 1, until(total), file)
    # It takes the steps of the last round alone, and counts those before it.
    assert total - schedule.site.steps * 3 - 2 <= told[0][0] and told[-1][0] == total
    for models, same in ((whole.weights, found.weights), (whole.unseen, found.unseen)):
        assert models.keys() == same.keys()
        for each, weights in models.items():
            np.testing.assert_array_equal(weights, same[each])
    assert found.upload[0] == pytest.approx(whole.upload[0], rel=0.01)
    assert found.upload[1] == whole.upload[1]
    assert found.seconds[0] > kept[2].seconds[0] > kept[1].seconds[0] > 0.0


def test_a_checkpoint_that_is_damaged_is_refused_by_its_file(tmp_path):
    file = tmp_path / 'training.npz'
    Checkpoint(2, {'start': np.ones(9, np.float32)}, b'abc', 7, (1.0, 2.0)).write(file)
    found = Checkpoint.read(file)
    assert (found.rounds, found.state, found.sent, found.seconds) == (2, b'abc', 7, (1.0, 2.0))
    data = file.read_bytes()
    for damaged in (b'', data[: len(data) // 2], b'x' * 50):
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match=r'training\.npz cannot be read: .*from the start'):
            train(METHODS['local'], 'tiny', sites(), SCHEDULE, 1, lambda done, who: None, file)


def windows(values: np.ndarray, before: np.ndarray) -> set[bytes]:
    """Return two neighbours that changed, at eight places all over a tensor, as bytes."""
    values, before = values.reshape(-1), before.reshape(-1)
    changed = np.flatnonzero(values != before)
    assert changed.size > 0.9 * values.size
    first = changed[:-1][np.diff(changed) == 1]
    chosen = first[np.linspace(0, first.size - 1, 8).astype(int)]
    return {values[at : at + 2].tobytes() for at in chosen}


def found_in(messages: bytes, wanted: set[bytes]) -> set[bytes]:
    """Return which windows of eight bytes are anywhere in messages."""
    known, found = np.sort(np.frombuffer(b''.join(wanted), '<i8')), set()
    for offset in range(8):
        data = np.frombuffer(messages, '<i8', (len(messages) - offset) // 8, offset)
        nearest = known[np.searchsorted(known, data).clip(max=known.size - 1)]
        found |= {each.tobytes() for each in data[nearest == data]}
    return found


def test_what_is_personal_is_in_no_byte_that_is_sent(monkeypatch):
    sent, steps, averages = bytearray(), [], []
    average = UpdateCodec.average

    class Overheard(MeasuredDriver):
        """Hears every message."""

        def post(self, message):
            sent.extend(encode(message))
            super().post(message)

    class Watched(SiteTraining):
        """Keeps the weights before and after each step."""

        def __call__(self, weights, round):
            after = super().__call__(weights, round)
            steps.append((round, weights, after))
            return after

    def decrypted(codec, slots, sizes, n_max):
        found = average(codec, slots, sizes, n_max)  # refuses numbers beyond n_parameters
        averages.append((codec.n_parameters, found))
        return found

    monkeypatch.setattr(run, 'MeasuredDriver', Overheard)
    monkeypatch.setattr(run, 'SiteTraining', Watched)
    monkeypatch.setattr(UpdateCodec, 'average', decrypted)
    trained = train(METHODS['fedst'], 'tiny', sites(), SCHEDULE, 1, lambda done, who: None)
    layout = layout_of(Segmenter(trained.settings))
    personal = tuple(each.name for each in layout.tensors if '.attn.q.' in each.name)
    shared = layout.shared(personal)
    assert personal and sorted(round for round, *_ in steps) == [1, 1, 1, 2, 2, 2]

    mine, server = set(), set()
    for _, before, after in steps:
        given, made = layout.split(before), layout.split(after)
        for name in personal:
            mine |= windows(made[name], given[name])
    last = layout.split(trained.unseen['server'])
    for name in personal:
        server |= windows(last[name], np.full_like(last[name], np.nan))
    assert len(mine) > 6 * 7 * len(personal)
    assert found_in(bytes(sent), mine | server) == server  # which are in the policies

    # What is encrypted is the change of what is shared, and nothing beside it.
    for round, (length, found) in enumerate(averages, 1):
        changes = [after - before for number, before, after in steps if number == round]
        assert length == found.size == shared.size
        expected = np.mean(changes, axis=0)[shared]
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
        assert np.abs(expected).max() > 1e-4
    assert len(averages) == SCHEDULE.rounds
    for name in personal:
        values = [layout.split(each)[name] for each in trained.weights.values()]
        assert not any(np.array_equal(one, other) for one, other in combinations(values, 2))
    heads = [layout.split(each)['head.fc.weight'] for each in trained.weights.values()]
    assert all(np.array_equal(each, heads[0]) for each in heads)


def test_all_methods_begin_with_the_same_encoder_and_head():
    given, starts = sites(), {}
    for name in ('fedavg', 'fedst'):
        settings = run.architecture(METHODS[name], 'tiny', 512)
        start = run.pretrained(settings, given, SCHEDULE, 1, lambda done, who: None)
        starts[name] = layout_of(Segmenter(settings)).split(start)
    assert len(starts['fedst']) > len(starts['fedavg'])
    for name, values in starts['fedavg'].items():
        assert np.array_equal(values, starts['fedst'][name])


def test_the_same_seed_trains_the_same_models():
    one, other = (
        train(METHODS['fedst'], 'tiny', sites(), SCHEDULE, 1, lambda done, who: None)
        for _ in range(2)
    )
    for name in one.weights:
        assert np.array_equal(one.weights[name], other.weights[name])
    assert np.array_equal(one.unseen['server'], other.unseen['server'])


def test_the_paper_s_model_for_a_site_outside_averages_what_is_personal():
    trained = train(METHODS['feddp'], 'tiny', sites(), SCHEDULE, 1, lambda done, who: None)
    mean = np.mean(list(trained.weights.values()), axis=0)
    np.testing.assert_allclose(trained.unseen['average'], mean, rtol=0, atol=1e-6)
    layout = layout_of(Segmenter(trained.settings))
    server = layout.split(trained.unseen['server'])
    name = next(each.name for each in layout.tensors if '.attn.q.weight' in each.name)
    assert not np.allclose(server[name], layout.split(mean)[name], atol=1e-6)
