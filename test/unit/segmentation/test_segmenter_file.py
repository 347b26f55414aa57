# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A segmenter comes back from its file as it was; a file that is not one is refused by name."""

from dataclasses import asdict, replace
import json
from pathlib import Path
import subprocess
import sys

from fdrl_ros.errors import PolicyError, StoreError
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.segmenter_file import (
    _digest,
    load_segmenter,
    save_segmenter,
    SavedSegmenter,
)
from fdrl_ros.segmentation.network.sizes import SegmenterSettings
import numpy as np
import pytest
import torch

SETTINGS = SegmenterSettings('tiny', text=8)


@pytest.fixture(scope='module')
def saved() -> SavedSegmenter:
    rng = np.random.default_rng(1)
    network = Segmenter(SETTINGS, rng)
    return SavedSegmenter.of(network, rng.normal(size=8).astype(np.float32), 'B')


@pytest.fixture
def file(saved, tmp_path) -> Path:
    path = tmp_path / 'segmenter.npz'
    save_segmenter(path, saved)
    return path


def changed(file: Path, *, sealed: bool = True, **fields: object) -> None:
    """Write other fields into a file, with their digest unless told not to."""
    with np.load(file) as found:
        kept = {name: found[name] for name in found}
    kept |= {name: np.asarray(each) for name, each in fields.items()}
    if sealed:
        apart = ('format', 'digest')
        kept['digest'] = np.asarray(_digest({k: v for k, v in kept.items() if k not in apart}))
    np.savez(file, **kept)


def test_a_segmenter_comes_back_as_it_was_and_is_its_owners_alone(saved, file):
    found = load_segmenter(file)
    assert (found.settings, found.site) == (saved.settings, 'B')
    np.testing.assert_array_equal(found.weights, saved.weights)
    np.testing.assert_array_equal(found.text, saved.text)
    assert file.stat().st_mode & 0o777 == 0o600
    clip, text = torch.rand(1, 4, 3, 32, 32), torch.from_numpy(saved.text)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            found.segmenter()(clip, text), saved.segmenter()(clip, text), rtol=0, atol=0
        )


def test_any_damage_is_told(file):
    data = file.read_bytes()
    for place in np.linspace(40, len(data) - 1, 40).astype(int).tolist():
        file.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            load_segmenter(file)
        except PolicyError as error:
            assert str(file) in str(error)
        else:  # bytes of the archive that nobody reads
            assert load_segmenter(file).site == 'B'
    for end in (0, 3, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:end])
        with pytest.raises(PolicyError, match='no file of a segmenter|damaged'):
            load_segmenter(file)


@pytest.mark.parametrize(
    ('fields', 'sealed', 'told'),
    [
        ({'format': 2}, True, 'format 2: expected 1'),
        ({'site': 'C'}, False, 'damaged: its digest is another one'),
        ({'text': np.zeros(9, np.float32)}, True, r'text vector float32 \(9,\): expected.*\(8,\)'),
        ({'weights': np.zeros(5, np.float32)}, True, r'weights float32 \(5,\): expected'),
        ({'text': np.full(8, np.nan, np.float32)}, True, 'text vector that are not finite'),
        ({'settings': json.dumps({'size': 'b9'})}, True, "size = 'b9': expected one of tiny"),
        ({'settings': json.dumps({'depth': 3})}, True, "unknown settings {'depth': 3}"),
        ({'settings': json.dumps({'text': 'x'})}, True, "unknown settings {'text': 'x'}"),
        ({'layout': '[]'}, True, 'not the layout of a policy'),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(file, fields, sealed, told):
    changed(file, sealed=sealed, **fields)
    with pytest.raises(PolicyError, match=told) as refused:
        load_segmenter(file)
    assert str(file) in str(refused.value)


def test_tensors_of_another_version_are_refused_when_the_network_is_made(file):
    changed(file, settings=json.dumps(asdict(replace(SETTINGS, temporal=False))))
    with pytest.raises(PolicyError, match='tensors of another architecture than tiny is here'):
        load_segmenter(file).segmenter()


@pytest.mark.parametrize('save', [np.save, torch.save, lambda path, it: path.write_bytes(b'x')])
def test_a_foreign_file_is_refused(save, tmp_path):
    path = tmp_path / 'other.npy'
    if save is torch.save:
        torch.save(Segmenter(SETTINGS).state_dict(), path)
    else:
        save(path, np.zeros(3))
    with pytest.raises(PolicyError, match=r'other\.npy is no file of a segmenter, or damaged'):
        load_segmenter(path)


def test_a_file_is_checked_without_pytorch(file):
    code = (
        'import sys; sys.modules["torch"] = None; from pathlib import Path; '
        'from fdrl_ros.segmentation.network.segmenter_file import load_segmenter; '
        'print(load_segmenter(Path(sys.argv[1])).site)'
    )
    done = subprocess.run([sys.executable, '-c', code, file], capture_output=True, text=True)
    assert done.stdout == 'B\n', done.stderr


def test_a_missing_file_or_folder_is_told(tmp_path, saved):
    with pytest.raises(PolicyError, match='cannot read the segmenter .*No such file'):
        load_segmenter(tmp_path / 'none.npz')
    with pytest.raises(StoreError, match='cannot write the segmenter'):
        save_segmenter(tmp_path / 'none' / 'a.npz', saved)


def test_a_segmenter_that_does_not_fit_itself_is_not_written(saved):
    with pytest.raises(PolicyError, match='weights'):
        replace(saved, weights=saved.weights[:-1])
    with pytest.raises(PolicyError, match='text vector float64'):
        replace(saved, text=saved.text.astype(np.float64))
