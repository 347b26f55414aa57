# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pictures agree with slow obvious geometry, and depend on what is drawn alone."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import hashlib
import math

from fdrl_ros.errors import ResourceError, SettingError
from fdrl_ros.runtime import kernels
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.render.fields import branches, field, patches, step
from fdrl_ros.surgery.render.scene import Dent, Moment, Scene
from fdrl_ros.surgery.render.shapes import BOX, CYLINDER, Material, ROD, Shape
from fdrl_ros.surgery.render.style import SceneStyle
from fdrl_ros.surgery.render.tissue import make_tissue, Organ, Tissue
import numpy as np
import pytest

GREY = Material((0.5, 0.5, 0.5))
PLAIN = SceneStyle(soft=0.0, fringe=0.0, noise=0.0)
CAMERA = Camera(40, 30, eye=(0.02, -0.08, 0.09), look=(0.0, 0.0, 0.0), field_of_view=0.5)
BALLS = 400


def level(height=0.0, size=64):
    """Return tissue without relief."""
    made = make_tissue(PLAIN, 0, size)
    looks = made.looks.copy()
    looks[..., 4:6] = 0.0
    return Tissue(np.full_like(made.heights, height), looks, made.fine, made.smoke, made.mean)


def empty(style=PLAIN):
    """Return a scene whose tissue is a hole."""
    return Scene(style, level(), math.inf)


def rays(camera, style):
    """Return the eye and the ray of each pixel, whose depth along the view is 1."""
    eye, turn = camera.pose()
    pinhole = camera.intrinsics
    u, v = np.meshgrid(
        (np.arange(camera.width) - pinhole.cx) / pinhole.fx,
        (np.arange(camera.height) - pinhole.cy) / pinhole.fy,
    )
    bent = 1.0 + style.barrel * (u * u + v * v)
    return eye, np.stack([u * bent, v * bent, np.ones_like(u)], axis=-1) @ turn.T


def meets(shape, eye, ways):
    """Return where rays meet a shape, the slow way; infinite where they do not."""
    if shape.kind == ROD:  # so many balls in a row
        found = np.full(ways.shape[:-1], np.inf)
        for share in np.linspace(0.0, 1.0, BALLS):
            middle = np.array(shape.start) + share * np.subtract(shape.end, shape.start)
            radius = shape.first + share * (shape.last - shape.first)
            a = (ways * ways).sum(axis=-1)
            b, c = ways @ (eye - middle), (eye - middle) @ (eye - middle) - radius**2
            root = b * b - a * c
            t = (-b - np.sqrt(np.maximum(root, 0.0))) / a
            found = np.where((root >= 0.0) & (t > 0.0), np.minimum(found, t), found)
        return found
    times = np.arange(0.0, 0.25, 2e-5)
    found = np.full(ways.shape[:-1], np.inf)
    for index in np.ndindex(found.shape):
        points = eye + times[:, None] * ways[index] - np.array(shape.start)
        if shape.kind == BOX:
            within = np.abs(points @ np.reshape(shape.turn, (3, 3)).T) <= shape.end
            inside = within.all(axis=1)
        else:
            axis = np.subtract(shape.end, shape.start)
            length = np.linalg.norm(axis)
            along = points @ (axis / length)
            across = (points * points).sum(axis=1) - along * along
            inside = (along >= 0.0) & (along <= length) & (across <= shape.first**2)
        if inside.any():
            found[index] = times[inside.argmax()]
    return found


def some_shapes(rng, kind, count=3):
    made = []
    for label in range(1, count + 1):
        start, end = rng.uniform(-0.025, 0.025, (2, 3))
        first, last = rng.uniform(0.001, 0.008, 2)
        turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        if kind == BOX:
            end = rng.uniform(0.003, 0.012, 3)
        made.append(
            Shape(
                GREY,
                tuple(start),
                tuple(end),
                first,
                last,
                label=label,
                kind=kind,
                turn=tuple(turn.ravel()),
            )
        )
    return made


@pytest.mark.parametrize('kind', [ROD, CYLINDER, BOX])
@pytest.mark.parametrize('barrel', [0.0, 0.15, -0.1])
def test_labels_and_depth_are_those_of_a_slow_obvious_ray_caster(kind, barrel):
    style = replace(PLAIN, barrel=barrel)
    rng, seen = np.random.default_rng([kind, round(100 * barrel) + 100]), 0
    camera = replace(CAMERA, width=24, height=18)
    eye, ways = rays(camera, style)
    for _ in range(4 if kind == ROD else 1):
        shapes = some_shapes(rng, kind)
        frame = empty(style).draw(camera, shapes)
        depths = np.stack([meets(each, eye, ways) for each in shapes])
        nearest = depths.min(axis=0)
        labels = np.where(np.isinf(nearest), 0, 1 + depths.argmin(axis=0))
        assert np.array_equal(frame.labels, labels)
        hit = labels > 0
        assert np.array_equal(np.isfinite(frame.depth), hit)
        assert np.abs(frame.depth[hit] - nearest[hit]).max() < 3e-5
        seen += hit.sum()
    assert seen > 30


def test_a_rod_within_its_own_end_is_a_ball():
    middle = (0.0, 0.0, 0.0)
    one, two = (
        empty().draw(CAMERA, [Shape(GREY, middle, (0.001, 0.0, 0.0), 0.01, last, label=1)])
        for last in (0.003, 0.009)
    )
    ball = empty().draw(CAMERA, [Shape(GREY, middle, middle, 0.01, 0.01, label=1)])
    assert np.array_equal(one.labels, ball.labels)
    assert np.array_equal(two.labels, ball.labels)
    assert np.array_equal(one.depth, ball.depth)


def test_shapes_behind_the_eye_and_beyond_the_farthest_are_not_seen():
    eye = np.array(CAMERA.eye)
    for place in (1.5 * eye, -100.0 * eye):
        at = tuple(place.tolist())
        frame = empty().draw(CAMERA, [Shape(GREY, at, at, 0.01, 0.01, label=1)])
        assert not frame.labels.any() and np.isinf(frame.depth).all()


def test_a_shaft_that_begins_behind_the_eye_is_seen():
    shaft = Shape(GREY, (0.05, -0.2, 0.2), (0.0, 0.0, 0.0), 0.004, 0.004, label=1)
    eye, ways = rays(CAMERA, PLAIN)
    frame = empty().draw(CAMERA, [shaft])
    short = replace(shaft, start=(0.02, -0.08, 0.08))  # what is before the eye
    expected = meets(short, eye, ways) < np.inf
    assert expected.sum() > 50
    assert (frame.labels == 1)[expected].mean() > 0.99


def test_a_shape_that_is_nowhere_is_not_drawn():
    nowhere = (math.nan, 0.0, 0.0)
    kinds = [Shape(GREY, nowhere, nowhere, 0.01, 0.01, kind=kind) for kind in (ROD, CYLINDER, BOX)]
    scene = Scene(PLAIN, level())
    frame = scene.draw(CAMERA, kinds)
    assert np.array_equal(frame.depth, scene.draw(CAMERA, []).depth)
    with pytest.raises(SettingError, match='shapes'):
        scene.draw(CAMERA, kinds * 4000)


def test_textures_may_lie_anywhere_in_memory():
    """Loads that want a wider alignment than numbers have would end the process here."""

    def moved(values):
        room = np.empty(values.size + 1, np.float32)[1:].reshape(values.shape)
        room[...] = values
        return room

    style = replace(PLAIN, smoke=0.5)
    tissue = make_tissue(style, 0, 64)
    textures = {name: getattr(tissue, name) for name in ('heights', 'looks', 'fine', 'smoke')}
    elsewhere = replace(tissue, **{name: moved(each) for name, each in textures.items()})
    one, other = (Scene(style, each).draw(CAMERA, []) for each in (tissue, elsewhere))
    assert np.array_equal(one.rgb, other.rgb)


def test_depth_of_level_tissue_is_that_of_a_plane():
    for height, surface in ((0.0, 0.0), (0.004, -0.01)):
        frame = Scene(PLAIN, level(height)).draw(CAMERA, [], Moment(surface=surface))
        eye, ways = rays(CAMERA, PLAIN)
        expected = (eye[2] - surface - height) / -ways[..., 2]
        assert np.abs(frame.depth - expected).max() < 2e-5
        assert not frame.labels.any()


@pytest.mark.parametrize('organ', [None, Organ()])
def test_depth_of_tissue_is_that_of_a_fine_march(organ):
    tissue = make_tissue(PLAIN, 3, 128, organ)
    dent = Dent(0.004, -0.002, 0.006, 0.003)
    camera = replace(CAMERA, width=16, height=12, field_of_view=0.3)
    frame = Scene(PLAIN, tissue).draw(camera, [], Moment(dents=(dent,)))
    eye, ways = rays(camera, PLAIN)

    def ground(x, y):
        u, v = ((each + 0.13) / tissue.pitch for each in (x, y))
        i, j = np.floor(u).astype(int), np.floor(v).astype(int)
        dx, dy = u - i, v - j
        h = tissue.heights
        low, high = (h[row, i] + dx * (h[row, i + 1] - h[row, i]) for row in (j, j + 1))
        square = (x - dent.x) ** 2 + (y - dent.y) ** 2
        fall = dent.depth * np.exp(-square / (2.0 * dent.spread**2))
        return low + dy * (high - low) - fall

    times = np.arange(0.05, 0.25, 2e-5)
    dented = 0
    for index in np.ndindex(ways.shape[:2]):
        points = eye + times[:, None] * ways[index]
        kept = np.abs(points[:, :2]).max(axis=1) < 0.128
        points, depths = points[kept], times[kept]
        below = points[:, 2] <= ground(points[:, 0], points[:, 1])
        if below.any():
            met = points[below.argmax()]
            assert frame.depth[index] == pytest.approx(depths[below.argmax()], abs=1.5e-4)
            dented += math.hypot(met[0] - dent.x, met[1] - dent.y) < dent.spread
    assert dented > 2


def test_an_instrument_keeps_the_lamp_off_the_tissue_behind_it():
    style = replace(PLAIN, beside=(0.0, 0.04), shadow=0.9, wet=0.0)
    rod = Shape(GREY, (-0.05, 0.0, 0.02), (0.05, 0.0, 0.02), 0.003, 0.003, label=1, shades=True)
    scene = Scene(style, level())
    lit, shaded = (
        scene.draw(CAMERA, [replace(rod, shades=each)]).rgb.astype(int) for each in (False, True)
    )
    darker = (lit - shaded).max(axis=2)
    assert 20 < (darker > 40).sum() < 400
    assert darker.min() >= 0


def test_the_same_arguments_give_the_same_bytes_in_any_number_of_threads():
    scene = Scene(SceneStyle(smoke=0.2), make_tissue(SceneStyle(), 1, 128))
    shapes = [some_shapes(np.random.default_rng(each), ROD) for each in range(12)]

    def drawn(each):
        frame = scene.draw(CAMERA, each, Moment(time=1.0, noise=5), each)
        return hashlib.sha256(frame.rgb.tobytes() + frame.depth.tobytes()).hexdigest()

    alone = [drawn(each) for each in shapes]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(drawn, shapes)) == alone
    assert len(set(alone)) == len(alone)


def test_what_moves_is_blurred_and_its_labels_are_those_of_now():
    now = some_shapes(np.random.default_rng(1), ROD)
    before = [
        replace(each, start=tuple(np.add(each.start, (0.003, 0.0, 0.0)).tolist())) for each in now
    ]
    scene = Scene(PLAIN, level())
    sharp, blurred = scene.draw(CAMERA, now), scene.draw(CAMERA, now, before=before)
    assert np.array_equal(sharp.labels, blurred.labels)
    assert np.array_equal(sharp.depth, blurred.depth)
    assert (sharp.rgb != blurred.rgb).any()
    with pytest.raises(SettingError, match='before'):
        scene.draw(CAMERA, now, before=before[:1])


def test_smoke_noise_and_time_change_the_picture_alone():
    scene = Scene(SceneStyle(), level())
    shapes = some_shapes(np.random.default_rng(1), ROD)
    plain = scene.draw(CAMERA, shapes)
    smoky = Scene(SceneStyle(smoke=0.5), level()).draw(CAMERA, shapes)
    noisy = scene.draw(CAMERA, shapes, Moment(noise=1))
    for each in (smoky, noisy):
        assert (each.rgb != plain.rgb).mean() > 0.3
        assert np.array_equal(each.labels, plain.labels)
        assert np.array_equal(each.depth, plain.depth)
    drift = Scene(SceneStyle(smoke=0.5), level()).draw(CAMERA, shapes, Moment(time=2.0))
    assert (drift.rgb != smoky.rgb).any()


def test_a_ball_within_tissue_shines_through_it_as_far_as_asked():
    shape = Shape(Material((0.0, 1.0, 0.0)), (0.0, 0.0, -0.004), (0.0, 0.0, -0.004), 0.003, 0.003)
    scene = Scene(PLAIN, level())
    hidden, clear = (scene.draw(CAMERA, [shape], Moment(clear=each)).rgb for each in (0.0, 0.5))
    changed = (hidden != clear).any(axis=2)
    assert 0 < changed.sum() < 0.1 * changed.size


def test_fields_are_smooth_and_vessels_stay_slender():
    rng = np.random.default_rng(0)
    made = field(rng, 64, 8)
    assert made.shape == (64, 64) and 0.0 <= made.min() < 0.35 < 0.65 < made.max() <= 1.0
    turned = np.roll(made, 1, axis=0)
    assert np.abs(made - turned).max() < 0.12, 'it repeats at its edges'
    share = patches(made, 0.3, 0.01).mean()
    assert share == pytest.approx(0.3, abs=0.05)
    assert not patches(made, 0.0, 0.01).any()
    assert step(np.array([-1.0, 0.5, 2.0], np.float32), 0.0, 1.0).tolist() == [0.0, 0.5, 1.0]
    pieces = branches(rng, 5)
    assert len(pieces) > 50 and max(radius for *_, radius in pieces) < 0.005


@pytest.mark.parametrize(('name', 'value'), [('wet', -1.0), ('barrel', 1.0), ('folds', math.nan)])
def test_styles_that_cannot_be_drawn_are_refused(name, value):
    with pytest.raises(SettingError, match=name):
        SceneStyle(**{name: value})


def test_nothing_is_drawn_without_the_compiled_arithmetic(monkeypatch):
    monkeypatch.setattr(kernels, 'lib', None)
    with pytest.raises(ResourceError, match='native/build.py'):
        Scene(PLAIN, level())
