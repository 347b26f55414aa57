# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Files of trained segmenters as npz: settings, weights, and the site's name and text vector.

They are read and checked without PyTorch, which only the network itself needs.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
import hashlib
import json
from pathlib import Path
from typing import Any, Final, Self, TYPE_CHECKING
from zipfile import BadZipFile
import zlib

from fdrl_ros.errors import errors_named, os_errors_as, PolicyError, StoreError
from fdrl_ros.policy.layout import TensorLayout
from fdrl_ros.runtime.durable import replacing
from fdrl_ros.segmentation.network.sizes import SegmenterSettings
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fdrl_ros.segmentation.network.segmenter import Segmenter

SEGMENTER_FORMAT: Final = 1
"""Version of the file, in its field `format`."""

_NUMBERS = ('weights', 'text')


@dataclass(frozen=True, eq=False)
class SavedSegmenter:
    """
    What a file of a segmenter holds.

    :param layout: names and shapes of the tensors, in the order of the weights.
    :param weights: shape (layout.n_parameters,), float32.
    :param text: vector of the site's prompt, shape (settings.text,), float32.
    :param site: whose model it is.
    :raises PolicyError: if weights or text have another length, or are not finite.
    """

    settings: SegmenterSettings
    layout: TensorLayout
    weights: NDArray[np.float32]
    text: NDArray[np.float32]
    site: str

    def __post_init__(self) -> None:
        """Refuse what does not fit."""
        for name, found, length in (
            ('weights', self.weights, self.layout.n_parameters),
            ('text vector', self.text, self.settings.text),
        ):
            if found.shape != (length,) or found.dtype != np.float32:
                words = f'{name} {found.dtype} {found.shape}'
                raise PolicyError(f'segmenter with {words}: expected float32 ({length},)')
            if not np.isfinite(found).all():
                raise PolicyError(f'segmenter with {name} that are not finite')

    @classmethod
    def of(cls, network: 'Segmenter', text: NDArray[np.float32], site: str) -> Self:
        """Take the weights of a network as they are now."""
        from fdrl_ros.learner.torch.flat_weights import flat, layout_of

        layout = layout_of(network)
        return cls(network.settings, layout, flat(network, layout), text, site)

    def segmenter(self) -> 'Segmenter':
        """
        Return the network, ready to be used.

        :raises PolicyError: if its tensors are others in this version of the package.
        :raises ImportError: if PyTorch is not installed.
        """
        from fdrl_ros.learner.torch.flat_weights import layout_of, load
        from fdrl_ros.segmentation.network.segmenter import Segmenter

        made = Segmenter(self.settings)
        if layout_of(made) != self.layout:
            size = self.settings.size
            raise PolicyError(f'tensors of another architecture than {size} is here')
        load(made, self.layout, self.weights)
        return made.eval()


def save_segmenter(path: Path, segmenter: SavedSegmenter) -> None:
    """
    Write a segmenter, readable by the owner alone; whole, or what was there stays.

    :raises StoreError: if the file cannot be written.
    """
    fields = {
        'settings': np.array(json.dumps(asdict(segmenter.settings))),
        'layout': np.array(segmenter.layout.to_json()),
        'site': np.array(segmenter.site),
        'weights': segmenter.weights.astype('<f4'),
        'text': segmenter.text.astype('<f4'),
    }
    fields |= {'digest': np.array(_digest(fields)), 'format': np.array(SEGMENTER_FORMAT)}
    with os_errors_as(StoreError, f'cannot write the segmenter {path}'):
        with replacing(path) as file:
            np.savez(file, **fields)  # type: ignore[arg-type]


def load_segmenter(path: Path) -> SavedSegmenter:
    """
    Read what :func:`save_segmenter` wrote.

    :raises PolicyError: if the file is missing, damaged, of another version or of unknown
        settings, or contradicts itself.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            version, digest = int(file['format']), str(file['digest'])
            fields = {name: file[name] for name in ('settings', 'layout', 'site', *_NUMBERS)}
        given: dict[str, Any] = json.loads(str(fields['settings']))
    except OSError as error:
        raise PolicyError(
            f'cannot read the segmenter {path}: {error.strerror or error}'
        ) from error
    except (KeyError, ValueError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise PolicyError(f'{path} is no file of a segmenter, or damaged') from error
    if version != SEGMENTER_FORMAT:
        raise PolicyError(f'{path} is of format {version}: expected {SEGMENTER_FORMAT}')
    if digest != _digest(fields):
        raise PolicyError(f'{path} is damaged: its digest is another one')
    with errors_named(PolicyError, str(path)):
        try:
            settings = SegmenterSettings(**given)
        except TypeError as error:
            raise PolicyError(f'unknown settings {given}') from error
        layout = TensorLayout.from_json(str(fields['layout']))
        weights, text = (fields[name].astype(np.float32) for name in _NUMBERS)
        return SavedSegmenter(settings, layout, weights, text, str(fields['site']))


def _digest(fields: Mapping[str, NDArray[Any]]) -> str:
    """Return SHA-256 of all fields with their names, types and shapes, hexadecimal."""
    made = hashlib.sha256()
    for name in sorted(fields):
        found = np.asarray(fields[name])
        made.update(f'{name} {found.dtype.str} {found.shape}\n'.encode())
        made.update(found.tobytes())
    return made.hexdigest()
