# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Endoscope: parts and depth sit where kinematics says, and pictures show what there is."""

from dataclasses import replace
import math

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
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.patient.cohort import mixture, public_cohort
from fdrl_ros.surgery.render.camera import Camera, FRAME_ID
from fdrl_ros.surgery.render.endoscope import Endoscope
from fdrl_ros.surgery.render.parts import BACKGROUND, JAW, SHAFT, WRIST
from fdrl_ros.surgery.render.picture import picture, room_picture
from fdrl_ros.surgery.render.room import Room
from fdrl_ros.surgery.render.view import tissue_colour, View, view_of
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pytest

HELD = [*straight_joints(0.004, -0.006, -0.122), 0.3, 0.0, 0.0]
BENT = [*straight_joints(-0.004, 0.002, -0.125), 0.4, 0.7, -0.5]


@pytest.fixture(scope='module')
def endoscope():
    return Endoscope(Camera(160, 120))


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
    assert 0.02 < frame.depth.min() < frame.depth.max() < 1.5
    upwards = Endoscope(Camera(32, 24, look=(0.0, 0.0, 0.3))).capture(HELD)
    nothing = np.isinf(upwards.depth)
    assert nothing.mean() > 0.5 and not upwards.labels[nothing].any()


def test_the_same_moment_gives_the_same_picture_whatever_was_drawn_before(endoscope):
    view = View(damage=2.0, waypoint=(0.01, 0.0, -0.12))
    first = endoscope.capture(HELD, 0.4, view)
    endoscope.capture(BENT, 0.0, View(object=(0.0, 0.0, -0.12), pegs=((0.0, 0.0, -0.12),)))
    second = endoscope.capture(HELD, 0.4, view)
    for name in ('rgb', 'depth', 'labels'):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_tip_and_fingers_of_the_whole_urdf_are_where_kinematics_puts_them():
    room, rng = Room(), np.random.default_rng(3)
    for joints in rng.uniform(LOWER, UPPER, (50, 6)).tolist():
        jaw = rng.uniform(*JAW_LIMITS)
        poses = room.poses(joints, jaw)
        tip, axes = (np.array(each) for each in forward(joints))
        assert np.abs(poses['tool_tip'][0] - tip).max() < 1e-6
        ways = {name: turn[:, 2] for name, (_, turn) in poses.items()}
        for name in ('jaw_left', 'jaw_right'):  # each finger takes half of the opening
            assert np.abs(poses[name][0] - (tip - TIP_LINK * axes[2])).max() < 1e-6
            assert ways[name] @ axes[2] == pytest.approx(math.cos(jaw / 2), abs=1e-6)
        assert ways['jaw_left'] @ ways['jaw_right'] == pytest.approx(math.cos(jaw), abs=1e-6)


def test_the_default_camera_is_the_optical_frame_of_the_urdf(endoscope):
    at, turn = Room().poses(HELD, 0.0)[FRAME_ID]
    position, rotation = endoscope.camera.pose()
    assert np.abs(position - at).max() < 1e-6
    assert np.abs(rotation - turn).max() < 1e-6


def test_pressed_tissue_is_dented_and_bruised(endoscope):
    pressing = [*straight_joints(0.0, 0.0, -0.138), 0.0, 0.0, 0.0]
    frame = endoscope.capture(pressing, 0.0, View(surface=-0.13))
    assert (frame.labels == JAW).sum() > 20  # the organ gives way to the tip
    deeper = frame.depth - endoscope.capture(HELD, 0.0, View(surface=-0.13)).depth
    assert deeper.max() > 0.004
    healthy, bruised = (
        endoscope.capture(HELD, 0.0, View(damage=each)).rgb[95:110, 70:90].mean(axis=(0, 1))
        for each in (0.0, 50.0)
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
        Room(tmp_path / 'none.urdf')


def begun(procedure=None):
    """Return an operation whose tip is near the organ."""
    operation = Operation(WorldSettings(mode='kinematic'))
    patient = mixture(3, 0.5, 1).patient(0, procedure=procedure) if procedure else None
    patient = patient or public_cohort(0).patient(0)
    operation.reset(replace(patient, start=(*patient.goal[:2], patient.goal[2] + 0.01)))
    return operation


@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_every_procedure_is_seen_without_guides_and_drawn_with_them(endoscope, procedure):
    operation = begun(procedure)
    shown, guided = (view_of(operation, guides=each) for each in (False, True))
    assert shown == replace(guided, waypoint=None)
    assert guided.waypoint == operation.waypoint
    frame = endoscope.capture(operation.arm.joints().tolist(), operation.jaw.angle, shown)
    assert set(np.unique(frame.labels)) == {BACKGROUND, SHAFT, WRIST, JAW}
    assert picture(operation, 80, 60).std() > 20.0


def test_a_picture_shows_the_force_and_is_the_same_each_time():
    operation = begun()
    near = picture(operation, 80, 60)
    assert np.array_equal(near, picture(operation, 80, 60))
    operation.force = (0.0, 0.0, 2.0)
    assert np.any(near != picture(operation, 80, 60))
    operation.force = (0.0, 0.0, 0.0)
    assert np.array_equal(near, picture(operation, 80, 60))
    assert view_of(operation).surface == operation.tissue.surface(0.0)[0]


def test_the_whole_arm_is_drawn_over_the_patient():
    operation = begun()
    far = room_picture(operation, 160, 120)
    assert (far.min(axis=2) > 240).mean() > 0.3, 'a white room'
    red, green, blue = np.moveaxis(far.astype(int), 2, 0)
    assert ((green > red + 30) & (blue > red + 30)).sum() > 500, 'the drapes'
    assert ((red > blue + 30) & (red > 150)).sum() > 500, 'skin'
    assert ((red > 2 * green) & (red > 80)).sum() > 10, 'the organ'
