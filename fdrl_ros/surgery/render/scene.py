# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Draws tissue and shapes through an endoscope, in compiled code (native/endoscope.c).

A picture depends on what is handed over and nothing else. Other threads of the process run while
it is drawn, and any number of them may draw at the same time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math

from fdrl_ros.errors import ResourceError, SettingError
from fdrl_ros.runtime import kernels
from fdrl_ros.runtime.ranges import check_whole
from fdrl_ros.surgery.render.camera import Camera
from fdrl_ros.surgery.render.shapes import Colour, packed, Shape
from fdrl_ros.surgery.render.style import SceneStyle
from fdrl_ros.surgery.render.tissue import EXTENT, FINE_PITCH, Tissue
import numpy as np
from numpy.typing import NDArray

_MOST_SHAPES = 10_000


@dataclass(frozen=True)
class Frame:
    """
    One picture of the endoscope.

    :param rgb: shape (height, width, 3), uint8.
    :param depth: along the view, shape (height, width), float32, m; infinite where nothing is.
    :param labels: one of PARTS by number in each pixel, shape (height, width), uint8.
    """

    rgb: NDArray[np.uint8]
    depth: NDArray[np.float32]
    labels: NDArray[np.uint8]


@dataclass(frozen=True)
class Dent:
    """
    What presses on the tissue.

    :param x: of its middle, m.
    :param y: of its middle, m.
    :param depth: below the untouched surface, m.
    :param radius: of what presses; the surface follows d exp(-r^2 / 2 a^2) with a^2 = R d, m.
    """

    x: float
    y: float
    depth: float
    radius: float

    @property
    def spread(self) -> float:
        """Return a, m."""
        return math.sqrt(max(self.radius * self.depth, 1e-8))


@dataclass(frozen=True)
class Moment:
    """
    What changes from picture to picture, apart from shapes.

    :param surface: height of the untouched tissue, m.
    :param dents: where it gives way.
    :param time: s; smoke drifts and the sensor's noise changes with it.
    :param tint: colour that the tissue takes on.
    :param tinted: how much of it, 0 to 1.
    :param clear: how much of a shape just within the tissue shines through it, 0 to 1.
    :param noise: number that chooses the sensor's noise.
    """

    surface: float = 0.0
    dents: tuple[Dent, ...] = ()
    time: float = 0.0
    tint: Colour = (0.0, 0.0, 0.0)
    tinted: float = 0.0
    clear: float = 0.0
    noise: int = 0


class Scene:
    """
    Tissue in one style.

    :param bottom: what is so far above the surface or less is a hole, m.
    :raises ResourceError: if the compiled arithmetic was not built.
    """

    def __init__(self, style: SceneStyle, tissue: Tissue, bottom: float = -math.inf) -> None:
        if not kernels.built():
            raise ResourceError(f'pictures are drawn in compiled code: {kernels.missing()}')
        self.style, self.tissue = style, tissue
        steep = np.abs(tissue.looks[::4, ::4, 4:6]).max(axis=2)
        self._steep = max(0.25, float(np.sort(steep.ravel())[int(0.98 * steep.size)]))
        self._top, self._bottom = float(tissue.heights.max()), bottom

    def draw(
        self,
        camera: Camera,
        shapes: Sequence[Shape],
        moment: Moment = Moment(),
        before: Sequence[Shape] = (),
    ) -> Frame:
        """
        Draw a picture.

        :param before: the same shapes a moment before, for the blur of what moves.
        :raises SettingError: if there are more or fewer shapes before, or more than 10,000.
        :raises ResourceError: if there is too little memory.
        """
        check_whole('shapes', len(shapes), 0, _MOST_SHAPES)
        if before and len(before) != len(shapes):
            raise SettingError('before', len(before), f'as many shapes as now: {len(shapes)}')
        style, tissue, ffi = self.style, self.tissue, kernels.ffi
        height, width = camera.height, camera.width
        eye, turn = camera.pose()
        pinhole = camera.intrinsics
        lamp = eye + style.beside[0] * turn[:, 0] - style.beside[1] * turn[:, 1]
        dents = ffi.new(
            'fdrl_dent[]', [(each.x, each.y, each.depth, each.spread) for each in moment.dents]
        )
        steep = self._steep + sum(0.7 * each.depth / each.spread for each in moment.dents)
        scene = ffi.new(
            'fdrl_scene *',
            {
                'eye': eye.tolist(),
                'turn': turn.ravel().tolist(),
                'focal': pinhole.fx,
                'across': pinhole.cx,
                'down': pinhole.cy,
                'near': camera.near,
                'far': camera.far,
                'barrel': style.barrel,
                'lamp': lamp.tolist(),
                'power': style.power,
                'fall': style.fall,
                'ambient': style.ambient,
                'wrap': style.wrap,
                'shadow': style.shadow,
                'width': width,
                'height': height,
                'size': len(tissue.heights),
                'grain': len(tissue.fine),
                'cloud': len(tissue.smoke),
                'dents': len(moment.dents),
                'heights': ffi.from_buffer('float[]', tissue.heights),
                'looks': ffi.from_buffer('float[]', tissue.looks),
                'fine': ffi.from_buffer('float[]', tissue.fine),
                'smoke': ffi.from_buffer('float[]', tissue.smoke),
                'dent': dents,
                'corner': (-EXTENT / 2, -EXTENT / 2),
                'pitch': tissue.pitch,
                'fine_pitch': FINE_PITCH,
                'surface': moment.surface,
                'top': self._top,
                'bottom': self._bottom,
                'steep': steep,
                'relief': style.relief,
                'tint': moment.tint,
                'tinted': moment.tinted,
                'mean': tissue.mean,
                'gap': style.nothing,
                'clear': moment.clear,
                'haze': style.smoke,
                'haze_colour': style.smoke_colour,
                'haze_at': (100.0 + 1.7 * moment.time, 100.0 + 0.9 * moment.time),
                'vignette': style.vignette,
                'soft': style.soft,
                'fringe': style.fringe,
                'gain': style.gain,
                'saturation': style.saturation,
                'noise': style.noise,
                'seed': moment.noise & 0xFFFFFFFF,
            },
        )
        rgb = np.empty((height, width, 3), np.uint8)
        depth = np.empty((height, width), np.float32)
        labels = np.empty((height, width), np.uint8)
        now = packed(shapes)
        then = packed(before) if before else None
        done = kernels.lib.fdrl_draw(
            scene,
            ffi.from_buffer('fdrl_shape[]', now),
            ffi.NULL if then is None else ffi.from_buffer('fdrl_shape[]', then),
            len(now),
            ffi.from_buffer('uint8_t[]', rgb),
            ffi.from_buffer('float[]', depth),
            ffi.from_buffer('uint8_t[]', labels),
        )
        if done != kernels.lib.FDRL_DONE:
            raise ResourceError('a picture needs more memory than there is')
        return Frame(rgb, depth, labels)
