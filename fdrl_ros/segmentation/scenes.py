# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Made-up video of six sites: hospitals A to D, an unseen one E, and a server's synthetic one.

Each site has its own tissue, light, smoke, blood and camera; instruments and their motion are
alike. A clip depends on its arguments alone.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.runtime.ranges import check_number, check_whole
from fdrl_ros.segmentation.clip import Clip
from fdrl_ros.segmentation.motion import Motion, Room
from fdrl_ros.surgery.arm.kinematics import Point
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.render.instrument import Build, instrument
from fdrl_ros.surgery.render.scene import Frame, Moment, Scene
from fdrl_ros.surgery.render.shapes import Material, Shape
from fdrl_ros.surgery.render.style import SceneStyle
from fdrl_ros.surgery.render.tissue import make_tissue, Tissue
import numpy as np

_SURFACE = -0.10
_EXPOSURE = 0.02  # seconds
_BREATH = (0.0015, 1.6)  # height, m, and rate, rad/s


@dataclass(frozen=True)
class Site:
    """
    One hospital's operations on video.

    :param surgery: its kind, as Table I of the FedST paper names it, for prompts.
    :param style: of its pictures.
    :param eye: where its camera is, about, m.
    :param field_of_view: from top to bottom, rad.
    :param instruments: chances of one, two and three in a clip.
    :param length: of fingers, times that of the arm's.
    :param width: of instruments, times the usual one.
    """

    surgery: str
    style: SceneStyle
    eye: Point = (0.0, -0.060, -0.035)
    field_of_view: float = 0.80
    instruments: tuple[float, float, float] = (0.2, 0.5, 0.3)
    length: float = 1.6
    width: float = 1.15


_A = SceneStyle()

SITES: Final = MappingProxyType(
    {
        'A': Site('Nephrectomy', _A),
        'B': Site(
            'Nephrectomy',
            replace(
                _A,
                tissue=(0.30, 0.055, 0.055),
                around=(0.60, 0.28, 0.20),
                fat=(0.86, 0.62, 0.28),
                fat_share=0.40,
                smoke=0.18,
                power=1.35,
                gain=(0.90, 1.0, 1.16),
                noise=0.022,
                vignette=0.6,
            ),
            eye=(0.010, -0.052, -0.028),
            field_of_view=0.90,
        ),
        'C': Site(
            'Prostatectomy',
            replace(
                _A,
                tissue=(0.62, 0.27, 0.23),
                around=(0.66, 0.36, 0.28),
                fat_share=0.15,
                vessels=11,
                blood=0.12,
                wet=1.2,
                stain=0.35,
                gain=(1.12, 0.98, 0.88),
                power=1.8,
            ),
            eye=(-0.008, -0.045, -0.040),
        ),
        'D': Site(
            'Hysterectomy',
            replace(
                _A,
                tissue=(0.58, 0.20, 0.22),
                around=(0.46, 0.12, 0.13),
                fat=(0.74, 0.50, 0.24),
                fat_share=0.10,
                smoke=0.10,
                blood=0.06,
                wet=0.5,
                power=1.9,
                fall=0.06,
                noise=0.028,
                soft=0.8,
                gain=(1.10, 0.92, 1.0),
                vignette=0.9,
            ),
            eye=(0.0, -0.070, -0.038),
            field_of_view=0.76,
        ),
        'E': Site(
            'Lobectomy',
            replace(
                _A,
                tissue=(0.62, 0.36, 0.34),
                around=(0.40, 0.10, 0.075),
                fat=(0.80, 0.60, 0.36),
                fat_share=0.20,
                mottled=0.9,
                vessels=9,
                smoke=0.12,
                blood=0.08,
                wet=1.0,
                gain=(0.94, 1.06, 0.86),
                power=2.0,
                noise=0.03,
                soft=0.7,
                barrel=0.12,
                vignette=1.0,
            ),
            eye=(0.012, -0.070, -0.010),
            field_of_view=0.86,
        ),
        'synthetic': Site(
            'Synthetic Data',
            replace(
                _A,
                tissue=(0.75, 0.10, 0.10),
                around=(0.80, 0.30, 0.25),
                fat=(0.95, 0.75, 0.20),
                vessels=0,
                mottled=0.15,
                blood=0.0,
                relief=0.0,
                wet=0.0,
                stain=0.0,
                power=1.2,
                ambient=0.45,
                fall=0.0,
                shadow=0.0,
                vignette=0.0,
                soft=0.0,
                fringe=0.0,
                noise=0.0,
                saturation=1.25,
                shaft=Material((0.10, 0.10, 0.12), gloss=0.0),
                wrist=Material((0.55, 0.55, 0.60), gloss=0.1),
                jaw=Material((0.75, 0.75, 0.80), gloss=0.1),
            ),
        ),
    }
)
"""By name; the last is the server's."""

_ARMS = ((0.105, -0.075, 0.030), (-0.105, -0.075, 0.030), (0.020, 0.095, 0.020))
"""Remote centres of the arms: from the right, from the left, from above, m."""


@lru_cache(maxsize=4)
def _tissue(style: SceneStyle, seed: tuple[int, ...]) -> Tissue:
    return make_tissue(style, seed)


def check_site(site: str) -> Site:
    """
    Return a site by its name.

    :raises SettingError: if there is none of that name.
    """
    if site not in SITES:
        raise SettingError('site', site, ', '.join(SITES))
    return SITES[site]


def site_clip(
    site: str, seed: int, number: int, *, frames: int, size: int, rate: float = 5.0
) -> Clip:
    """
    Draw a clip of a site: another patient, camera and motion for each number.

    A longer clip begins with the frames of a shorter one.

    :param site: one of SITES by name.
    :param seed: of all clips, at least 0.
    :param number: of this clip, at least 0.
    :param frames: how many.
    :param size: width and height, pixels.
    :param rate: frames a second.
    :raises SettingError: on what cannot be drawn.
    :raises ResourceError: if the compiled arithmetic was not built.
    """
    world = check_site(site)
    for name, value in (('seed', seed), ('number', number)):
        check_whole(name, value, 0, 2**31 - 1)
    check_whole('frames', frames, 1, 100_000)
    check_whole('size', size, 16, 2048)
    check_number('rate', rate, 0.1, 240.0)
    drawn = _Operation(world, [Stream.SITES, seed, list(SITES).index(site), number], frames / rate)
    pictures = [drawn.frame(size, index / rate, index) for index in range(frames)]
    return Clip(
        f'site_{site}/{number:04d}',
        np.stack([each.rgb for each in pictures]),
        np.stack([each.labels for each in pictures]),
        rate,
    )


class _Operation:
    """One clip's tissue, camera and instruments."""

    def __init__(self, site: Site, seed: list[int], length: float) -> None:
        rng = np.random.default_rng(seed)
        style = replace(site.style, power=site.style.power * float(rng.uniform(0.9, 1.1)))
        self._noise = int(rng.integers(2**31))
        tissue = _tissue(site.style, (*seed, 1))
        self._scene = Scene(style, tissue)
        x, y, z = site.eye
        jitter = rng.uniform(-1.0, 1.0, 6)
        self._eye = np.array([x, y, z]) + 0.006 * jitter[:3]
        self._look = np.array([0.0, 0.0, _SURFACE + 0.006]) + 0.006 * jitter[3:]
        self._field_of_view = site.field_of_view
        self._phase = float(rng.uniform(0.0, 6.0))
        count = 1 + int(rng.choice(3, p=site.instruments))
        chosen = sorted(rng.permutation(3)[:count].tolist())
        self._tools: list[tuple[Point, Motion, Build]] = []
        for index in chosen:
            at = _ARMS[index]
            own = np.random.default_rng([*seed, 2, index])
            side = 0.011 * float(np.sign(at[0]))
            low = (side - 0.014 - at[0], -0.018 - at[1], _SURFACE + 0.002 - at[2])
            high = (side + 0.014 - at[0], 0.020 - at[1], _SURFACE + 0.026 - at[2])
            fingers = site.length * float(own.uniform(0.8, 1.25))
            build = Build(
                style.shaft,
                style.wrist,
                style.jaw,
                fingers=fingers,
                thickness=float(own.uniform(0.8, 1.2)),
                width=site.width,
            )
            self._tools.append((at, Motion(own, Room(low, high), length), build))

    def _shapes(self, time: float) -> list[Shape]:
        made: list[Shape] = []
        for at, motion, build in self._tools:
            made += instrument(*motion.at(time), build, at)
        return made

    def frame(self, size: int, time: float, index: int) -> Frame:
        """Draw the picture at a time, s."""
        height, rate = _BREATH
        sway = 0.0012 * np.sin(np.array([0.9, 1.3, 0.7]) * time + self._phase)
        camera = Camera(
            size,
            size,
            eye=tuple((self._eye + sway).tolist()),
            look=tuple(self._look.tolist()),
            field_of_view=self._field_of_view,
        )
        moment = Moment(
            surface=_SURFACE + height * float(np.sin(rate * time + self._phase)),
            time=time + self._phase,
            noise=self._noise + 7919 * index,
        )
        return self._scene.draw(camera, self._shapes(time), moment, self._shapes(time - _EXPOSURE))
