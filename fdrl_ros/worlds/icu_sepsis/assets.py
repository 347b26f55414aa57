# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Read ICU-Sepsis out of its installed package, without importing it: it wants the old gym."""

import functools
import hashlib
import importlib.util
from pathlib import Path
import zipfile

from fdrl_ros.errors import ResourceError
from fdrl_ros.worlds.icu_sepsis.model import (
    ACTION_COUNT,
    Floats,
    IcuSepsis,
    PATIENT_STATES,
    STATE_COUNT,
)
import numpy as np
from numpy.typing import NDArray

PACKAGE = 'icu_sepsis'
VERSION = '2.0.1'
INSTALL = f'pip install --no-deps icu-sepsis=={VERSION}'
DYNAMICS = 'dynamics.npz'
ADMISSIBLE = 'admissible_actions.txt'
SHA256 = {
    DYNAMICS: '36498f924c693c6be7ae18f3ce9e1a8e48d41f80f2cc553b3993b1373c8a9109',
    ADMISSIBLE: '607f4e1eeee4f33a2124fb4a1beefd82fc264a3b608d41d13f810166aa203165',
}


def assets() -> Path:
    """
    Return the folder of the package's data.

    :raises ResourceError: if the package is not installed, with the command that does it.
    """
    found = importlib.util.find_spec(PACKAGE)  # of a package at the top: it is not imported
    for each in (found.submodule_search_locations or ()) if found else ():
        folder = Path(each) / 'envs' / 'assets'
        if (folder / DYNAMICS).is_file():
            return folder
    raise ResourceError(f'the data of ICU-Sepsis are not installed: {INSTALL}')


def verified(folder: Path, name: str) -> Path:
    """
    Return the path of a file after checking its SHA-256.

    :raises ResourceError: if it cannot be read or its SHA-256 is another.
    """
    path = folder / name
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ResourceError(f'cannot read {path}: {error}; {INSTALL}') from error
    if digest != SHA256[name]:
        raise ResourceError(
            f'{path} is not that of icu-sepsis {VERSION}: SHA-256 {digest}, expected '
            f'{SHA256[name]}; {INSTALL} --force-reinstall'
        )
    return path


@functools.cache
def icu_sepsis() -> IcuSepsis:
    """
    Return the model, read once.

    The file holds the transitions of 716 x 25 pairs, 103 MB, mostly twice and more: they are
    read state by state, so that only what is kept (17 MB) is ever in memory.

    :raises ResourceError: if the package is missing or another version.
    """
    folder = assets()
    dynamics = verified(folder, DYNAMICS)
    admissible = _admissible(verified(folder, ADMISSIBLE))
    names = ('d_0', 'expert_policy', 'state_cluster_centers', 'sofa_scores')
    with np.load(dynamics, allow_pickle=False) as file:
        start, clinicians, centres, sofa = (
            np.asarray(file[name], np.float64)[:PATIENT_STATES] for name in names
        )
    rows, row_of = _transitions(dynamics, admissible)
    return IcuSepsis(rows, row_of, start, clinicians, centres, sofa, admissible)


def _admissible(path: Path) -> NDArray[np.bool_]:
    """Return which actions each state admits; the file's first line only counts them."""
    mask = np.zeros((PATIENT_STATES, ACTION_COUNT), np.bool_)
    lines = path.read_text('ascii').splitlines()[1:]
    for row, line in zip(mask, lines, strict=False):
        row[[int(word) for word in line.split()]] = True
    return mask


def _transitions(path: Path, admissible: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.int64]]:
    """Return the distinct rows and which of them each pair has."""
    counts = admissible.sum(axis=1)
    ends = np.cumsum(counts + (counts < ACTION_COUNT))
    rows = np.empty((int(ends[-1]), STATE_COUNT - 1))
    row_of = np.empty((PATIENT_STATES, ACTION_COUNT), np.int64)
    with zipfile.ZipFile(path) as archive, archive.open('tx_mat.npy') as member:
        np.lib.format.read_magic(member)
        shape, by_columns, kind = np.lib.format.read_array_header_1_0(member)
        assert shape == (STATE_COUNT, ACTION_COUNT, STATE_COUNT) and not by_columns
        size = ACTION_COUNT * STATE_COUNT * kind.itemsize
        for state, end in enumerate(ends.tolist()):
            block = np.frombuffer(member.read(size), kind).reshape(ACTION_COUNT, STATE_COUNT)
            others = np.flatnonzero(~admissible[state])
            kept = np.concatenate((np.flatnonzero(admissible[state]), others[:1]))
            row_of[state] = end - 1  # the others all have the same: the mean
            row_of[state, kept] = np.arange(end - len(kept), end)
            rows[end - len(kept) : end] = block[kept, :-1]
    return rows, row_of
