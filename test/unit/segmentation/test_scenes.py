# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sites look different, show instruments enough, and a clip depends on its arguments alone."""

from concurrent.futures import ThreadPoolExecutor
import hashlib
import subprocess
import sys

from fdrl_ros.errors import SettingError
from fdrl_ros.segmentation.motion import Motion, Room
from fdrl_ros.segmentation.scenes import site_clip, SITES
from fdrl_ros.surgery.arm.kinematics import forward
from fdrl_ros.surgery.render.parts import PARTS
import numpy as np
import pytest

WORK = [('A', 1, 0), ('B', 1, 3), ('synthetic', 2, 1), ('E', 1, 0), ('A', 1, 1)]
ELSEWHERE = """
import hashlib, sys
from fdrl_ros.segmentation.scenes import site_clip
clip = site_clip('A', 1, 0, frames=3, size=48)
print(hashlib.sha256(clip.frames.tobytes() + clip.labels.tobytes()).hexdigest())
"""


def digest(work):
    clip = site_clip(*work, frames=3, size=48)
    return hashlib.sha256(clip.frames.tobytes() + clip.labels.tobytes()).hexdigest()


def test_a_clip_has_the_same_bytes_in_any_order_thread_and_process():
    alone = [digest(each) for each in WORK]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(digest, WORK * 2)) == alone * 2
    assert [digest(each) for each in reversed(WORK)] == alone[::-1]
    assert len(set(alone)) == len(alone)
    run = subprocess.run(
        [sys.executable, '-c', ELSEWHERE], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == alone[0]


def test_a_longer_clip_begins_with_a_shorter_one():
    short, long = (site_clip('C', 0, 2, frames=frames, size=32) for frames in (2, 9))
    assert np.array_equal(short.frames, long.frames[:2])
    assert np.array_equal(short.labels, long.labels[:2])


@pytest.mark.parametrize('site', SITES)
def test_instruments_of_a_site_are_seen_and_move(site):
    clips = [site_clip(site, 0, number, frames=3, size=48) for number in range(10)]
    labels = np.stack([each.labels for each in clips])
    shares = [(labels == part).mean() for part in range(len(PARTS))]
    assert 0.05 < 1.0 - shares[0] < 0.25
    assert min(shares[1:]) > 0.005
    assert sum((each.labels[0] != each.labels[2]).any() for each in clips) >= 9


def test_sites_differ_in_colour_and_the_synthetic_one_is_plain():
    def mean(site):
        frames = [site_clip(site, 0, each, frames=1, size=48).frames for each in range(6)]
        return np.mean(frames, axis=(0, 1, 2, 3))

    colours = np.stack([mean(site) for site in SITES])
    apart = np.linalg.norm(colours[:, None] - colours[None], axis=2)
    assert apart[~np.eye(len(SITES), dtype=bool)].min() > 12.0
    assert SITES['synthetic'].style.noise == SITES['synthetic'].style.wet == 0.0


def test_tips_stay_in_their_room_and_never_jump():
    room = Room((-0.01, -0.02, -0.13), (0.01, 0.02, -0.11))
    motion = Motion(np.random.default_rng(0), room, 10.0)
    places = np.array([forward(motion.at(time)[0])[0] for time in np.arange(0.0, 10.0, 0.02)])
    assert (places >= np.array(room.low) - 1e-6).all()
    assert (places <= np.array(room.high) + 1e-6).all()
    speeds = np.linalg.norm(np.diff(places, axis=0), axis=1) / 0.02
    assert 0.01 < speeds.max() < 0.2
    assert motion.at(-1.0) == motion.at(0.0)
    jaws = [motion.at(time)[1] for time in np.arange(0.0, 10.0, 0.1)]
    assert min(jaws) >= 0.0 and max(jaws) > 0.3


@pytest.mark.parametrize(
    ('name', 'value'),
    [
        ('site', 'F'),
        ('seed', -1),
        ('number', -1),
        ('frames', 0),
        ('size', 8),
        ('size', 5000),
        ('rate', 0.0),
        ('rate', float('nan')),
    ],
)
def test_clips_that_cannot_be_are_refused(name, value):
    given = {'site': 'A', 'seed': 0, 'number': 0, 'frames': 1, 'size': 16, name: value}
    with pytest.raises(SettingError, match=name):
        site_clip(**given)
