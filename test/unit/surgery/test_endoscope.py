# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Endoscope: parts and depth sit where kinematics says, and pictures show what there is."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import math
import os
from pathlib import Path
import signal
import time

from fdrl_ros.errors import ResourceError, SettingError, StateError
from fdrl_ros.surgery.arm.kinematics import (
    forward,
    JAW_LIMITS,
    LOWER,
    straight_joints,
    TIP_LINK,
    UPPER,
    WRIST_LINK,
)
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.render.camera import Camera, FRAME_ID
from fdrl_ros.surgery.render.endoscope import (
    BACKGROUND,
    Endoscope,
    EndoscopeProcess,
    JAW,
    SHAFT,
    WRIST,
)
from fdrl_ros.surgery.render.organ import AXES, cast, Dent, LEVEL
from fdrl_ros.surgery.render.picture import CLOSE_EYE, CLOSE_LOOK, picture
from fdrl_ros.surgery.render.renderer import Renderer
from fdrl_ros.surgery.render.scene_objects import arc, tube, turn_from_z
from fdrl_ros.surgery.render.view import tissue_colour, View, view_of
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pybullet
import pytest

HELD = [*straight_joints(0.004, -0.006, -0.122), 0.3, 0.0, 0.0]
BENT = [*straight_joints(-0.004, 0.002, -0.125), 0.4, 0.7, -0.5]


@pytest.fixture(scope='module')
def endoscope():
    made = Endoscope(Camera(160, 120))
    yield made
    made.close()


def seen(endoscope, point):
    """Project a point of the base frame by the pinhole camera: pixel column, row and depth."""
    position, rotation = endoscope.camera.pose()
    camera = endoscope.camera.intrinsics
    x, y, z = rotation.T @ (np.array(point) - position)
    column, row = camera.fx * x / z + camera.cx, camera.fy * y / z + camera.cy
    return round(column), round(row), z


@pytest.mark.parametrize('joints', [HELD, BENT])
def test_parts_and_depth_are_where_kinematics_puts_them(endoscope, joints):
    frame = endoscope.capture(joints, 0.0)
    tip, axes = (np.array(each) for each in forward(joints))
    yaw_axis = tip - TIP_LINK * axes[2]
    bare = [*joints[:4], 0.0, 0.0]
    straight, bare_axes = (np.array(each) for each in forward(bare))
    pitch_axis = straight - (WRIST_LINK + TIP_LINK) * bare_axes[2]
    for point, label in (
        (tip - 0.002 * axes[2], JAW),
        (yaw_axis - 0.35 * (yaw_axis - pitch_axis), WRIST),
        (pitch_axis - 0.005 * bare_axes[2], SHAFT),
    ):
        column, row, depth = seen(endoscope, point)
        assert frame.labels[row, column] == label
        assert 0.0 <= depth - frame.depth[row, column] < 0.006  # no more than the part is thick


def test_a_frame_has_the_shapes_and_numbers_it_promises(endoscope):
    frame = endoscope.capture(HELD)
    described = {name: (array.shape, array.dtype) for name, array in vars(frame).items()}
    assert described == {
        'rgb': ((120, 160, 3), np.uint8),
        'depth': ((120, 160), np.float32),
        'labels': ((120, 160), np.uint8),
    }
    assert set(np.unique(frame.labels)) == {BACKGROUND, SHAFT, WRIST, JAW}
    assert np.isinf(frame.depth[0, 0]) and frame.depth.min() > 0.0


def test_the_same_moment_gives_the_same_picture_whatever_was_drawn_before(endoscope):
    view = View(damage=2.0, waypoint=(0.01, 0.0, -0.12))
    first = endoscope.capture(HELD, 0.4, view)
    endoscope.capture(BENT, 0.0, View(object=(0.0, 0.0, -0.12), pegs=((0.0, 0.0, -0.12),)))
    second = endoscope.capture(HELD, 0.4, view)
    for name in ('rgb', 'depth', 'labels'):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_pybullet_puts_tip_and_fingers_of_the_whole_urdf_where_kinematics_does():
    renderer, rng = Renderer(), np.random.default_rng(3)
    for joints in rng.uniform(LOWER, UPPER, (50, 6)).tolist():
        jaw = rng.uniform(*JAW_LIMITS)
        renderer.show(joints, jaw, View())
        places, ways = {}, {}
        for index, name in enumerate(renderer.links):
            link = pybullet.getLinkState(renderer.body, index, 0, 1, renderer.client)
            places[name] = np.array(link[4])
            ways[name] = np.array(pybullet.getMatrixFromQuaternion(link[5])).reshape(3, 3)[:, 2]
        tip, axes = (np.array(each) for each in forward(joints))
        assert np.abs(places['tool_tip'] - tip).max() < 1e-6
        for name in ('jaw_left', 'jaw_right'):  # each finger takes half of the opening
            assert np.abs(places[name] - (tip - TIP_LINK * axes[2])).max() < 1e-6
            assert ways[name] @ axes[2] == pytest.approx(math.cos(jaw / 2), abs=1e-6)
        assert ways['jaw_left'] @ ways['jaw_right'] == pytest.approx(math.cos(jaw), abs=1e-6)
    renderer.close()


def test_the_default_camera_is_the_optical_frame_of_the_urdf(endoscope):
    renderer = Renderer()
    index = renderer.links.index(FRAME_ID)
    link = pybullet.getLinkState(renderer.body, index, 0, 1, renderer.client)
    position, rotation = endoscope.camera.pose()
    assert np.abs(position - link[4]).max() < 1e-6
    matrix = np.array(pybullet.getMatrixFromQuaternion(link[5])).reshape(3, 3)
    assert np.abs(rotation - matrix).max() < 1e-6
    renderer.close()


def test_pressed_tissue_is_dented_and_bruised(endoscope):
    pressing = [*straight_joints(0.0, 0.0, -0.138), 0.0, 0.0, 0.0]
    frame = endoscope.capture(pressing, 0.0, View(surface=-0.13))
    assert (frame.labels == JAW).sum() > 20  # the organ gives way to the tip
    healthy, bruised = (
        endoscope.capture(HELD, 0.0, View(damage=each)).rgb[100, 80] for each in (0.0, 50.0)
    )
    assert healthy[0] > 1.5 * bruised[0]
    assert tissue_colour(0.0) == tissue_colour(-1.0) != tissue_colour(1.0)


def test_things_are_seen_where_they_are(endoscope):
    away = [*straight_joints(0.05, 0.05, -0.07), 0.0, 0.0, 0.0]
    empty = endoscope.capture(away)
    place = (0.005, 0.0, -0.120)
    for view in (
        View(waypoint=place),
        View(object=place),
        View(object=place, ring=True),
        View(pegs=(place,)),
        View(cut=(place, (0.02, 0.01, -0.13)), cut_done=0.5),
    ):
        changed = np.any(endoscope.capture(away, 0.0, view).rgb != empty.rgb, axis=2)
        column, row, _ = seen(endoscope, place)
        rows, columns = np.nonzero(changed)
        assert len(rows) > 3
        if view.cut is None:
            assert np.hypot(rows - row, columns - column).min() < 12


def test_pictures_are_due_at_their_rate(endoscope):
    times = np.arange(0.0, 1.0, 0.01)
    assert sum(endoscope.camera.due(each) for each in times) == pytest.approx(15, abs=1)
    assert endoscope.camera.due(0.0)  # a new operation begins


@pytest.mark.parametrize(
    ('name', 'value'),
    [
        ('width', 4),
        ('height', 5000),
        ('fps', 0.0),
        ('fps', math.nan),
        ('eye', (0.0, 0.0)),
        ('look', (math.nan, 0.0, 0.0)),
        ('look', (*Camera().eye[:2], -0.1)),
        ('field_of_view', math.pi),
        ('near', 0.0),
        ('far', 0.005),
        ('far', math.inf),
    ],
)
def test_cameras_that_cannot_be_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        Camera(**{name: value})


def test_pictures_that_cannot_be_taken_are_refused(endoscope, tmp_path):
    with pytest.raises(StateError, match='six'):
        endoscope.capture(HELD[:5])
    for jaw in (2 * JAW_LIMITS[1], math.nan):
        with pytest.raises(StateError, match='jaw'):
            endoscope.capture(HELD, jaw)
    with pytest.raises(ResourceError, match='URDF'):
        Endoscope(urdf=tmp_path / 'none.urdf')


def test_a_process_of_its_own_draws_the_same_and_says_when_it_is_gone(endoscope):
    apart = EndoscopeProcess(Camera(160, 120))
    view = View(waypoint=(0.01, 0.0, -0.12))
    here, there = (each.capture(BENT, 0.3, view) for each in (endoscope, apart))
    for name in ('rgb', 'depth', 'labels'):
        assert np.array_equal(getattr(here, name), getattr(there, name))
    with pytest.raises(StateError, match='six'):
        apart.capture([0.0] * 5)
    assert apart.capture(BENT).labels.max() == JAW  # a refusal does not end it
    assert apart.camera.intrinsics == endoscope.camera.intrinsics
    apart.process.kill()
    apart.process.join()
    with pytest.raises(ResourceError, match='gone'):
        apart.capture(BENT)
    for _ in range(2):
        apart.close()
        with pytest.raises(StateError, match='the endoscope is closed'):
            apart.capture(BENT)


def test_process_is_deaf_to_ctrl_c_from_its_first_moment_and_its_maker_is_not():
    apart = EndoscopeProcess(Camera(16, 16))
    status = Path(f'/proc/{apart.process.pid}/status').read_text()
    blocked = int(next(e for e in status.splitlines() if e.startswith('SigBlk')).split()[1], 16)
    assert blocked >> (signal.SIGINT - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    os.kill(apart.process.pid, signal.SIGINT)
    assert apart.capture(HELD).labels.shape == (16, 16)
    apart.close()


@pytest.mark.parametrize('is_up', [False, True])
def test_close_ends_a_wait_for_a_process_that_hangs(is_up):
    apart = EndoscopeProcess(Camera(16, 16))
    if is_up:
        apart.capture(HELD)
    os.kill(apart.process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        picture = pool.submit(apart.capture, HELD)
        began = time.monotonic()
        apart.close()
        with pytest.raises(StateError, match='the endoscope is closed'):
            picture.result(10.0)
    assert time.monotonic() - began < 1.5
    assert not apart.process.is_alive()


def test_picture_after_picture_takes_no_more_memory():
    endoscope, grown = Endoscope(Camera(8, 8)), []
    for index in range(200):
        endoscope.capture(HELD, 0.0, View(surface=-0.13 + 1e-5 * index, waypoint=HELD[:3]))
        grown.append(int(Path('/proc/self/statm').read_text().split()[1]) * 4096)
    steps = np.diff(grown[100:])
    # What leaks grows on and on; other threads of the process may take a page once.
    assert max(grown[100:]) - max(grown[:100]) < 1e6 or np.count_nonzero(steps > 0) <= 3
    endoscope.close()


def test_an_operation_is_drawn_from_afar_and_near():
    operation = Operation(WorldSettings(mode='kinematic'))
    patient = public_cohort(0).patient(0)
    operation.reset(replace(patient, start=(*patient.goal[:2], patient.goal[2] + 0.01)))
    renderer = Renderer()
    far = picture(operation, 80, 60, renderer=renderer)
    assert far.shape == (60, 80, 3)
    assert np.array_equal(far, picture(operation, 80, 60))  # a new renderer draws the same
    near = picture(operation, 80, 60, CLOSE_EYE, CLOSE_LOOK, renderer)
    operation.force = (0.0, 0.0, 2.0)
    pressed = picture(operation, 80, 60, CLOSE_EYE, CLOSE_LOOK, renderer)
    assert np.any(near != pressed)
    operation.force = (0.0, 0.0, 0.0)
    assert np.array_equal(near, picture(operation, 80, 60, CLOSE_EYE, CLOSE_LOOK, renderer))
    assert view_of(operation).surface == operation.tissue.surface(0.0)[0]
    renderer.close()


def ground(x, y, surface, dent):
    """Return the height of the organ the slow obvious way, m; nothing beyond its edge."""
    square = 1.0 - (x / AXES[0]) ** 2 - (y / AXES[1]) ** 2
    if square < 0.0:
        return -math.inf
    sunk = AXES[2] * math.sqrt(1.0 - LEVEL**2)
    height = min(surface, surface - sunk + AXES[2] * math.sqrt(square))
    return height - float(dent.fall(x, y)) if height == surface else height


def test_rays_meet_the_organ_where_a_fine_march_does():
    eye, surface, dent = np.array([-0.05, -0.046, -0.072]), -0.13, Dent(0.004, 0.0, 0.006, 0.003)
    rng, compared = np.random.default_rng(0), 0
    targets = rng.uniform([-0.1, -0.08, -0.16], [0.1, 0.08, -0.13], (40, 3))
    targets[:20] = rng.uniform([-0.008, -0.012, -0.136], [0.016, 0.012, -0.13], (20, 3))
    rays = (targets - eye).T.astype(np.float32)
    for ray, found in zip(rays.T, cast(eye, rays, surface, dent), strict=True):
        steps = np.arange(0.0, 2.0, 5e-4)
        below = [
            z <= ground(x, y, surface, dent) for x, y, z in (eye + steps[:, None] * ray).tolist()
        ]
        met = steps[below.index(True)] if any(below) else math.inf
        if met == math.inf:
            assert not found < 1.9
        else:
            compared += 1
            assert abs(found - met) * np.linalg.norm(ray) < 2e-4
    assert compared > 25


def test_meshes_and_turns_are_what_they_should_be():
    vertices, normals, triangles = tube(arc(0.006, math.pi), 0.0006)
    radii = np.hypot(vertices[:, 0], vertices[:, 1])
    assert np.abs(radii - 0.006).max() < 0.0006 + 1e-5
    assert np.linalg.norm(normals, axis=1) == pytest.approx(1.0)
    a, b, c = (vertices[triangles[corner::3]] for corner in range(3))
    facing = np.sum(np.cross(b - a, c - a) * normals[triangles[::3]], axis=1)
    assert (facing > 0.0).all(), 'all triangles face outwards'
    for way in ((0.0, 0.0, 2.0), (0.0, 0.0, -1.0), (1.0, -2.0, 0.5)):
        turned = np.array(pybullet.getMatrixFromQuaternion(turn_from_z(way))).reshape(3, 3)
        assert turned[:, 2] == pytest.approx(np.array(way) / np.linalg.norm(way))
