# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The files of the page: what they say of messages, what they load, whose libraries they are."""

import hashlib
import re

from fdrl_ros.resources import resource
import pytest

STATIC = resource('fdrl_ros/page/static')
WORDS = (STATIC / 'words.js').read_text('utf-8')
OWN = sorted(each for each in STATIC.iterdir() if each.suffix in {'.js', '.css', '.html'})
CONSTANT = re.compile(r'^(?:string|uint8) ([A-Z]+)_?(\w*) *= *"?([\w ]+)', re.MULTILINE)


def table(name: str) -> str:
    """Return the text of a table of words.js."""
    return WORDS.split(f'export const {name} = {{')[1].split('\n};')[0]


@pytest.mark.parametrize(
    ('message', 'prefix', 'name'),
    [
        ('SelectedAction', 'REASON', 'REASONS'),
        ('SelectedAction', 'VETO', 'VETOES'),
        ('Outcome', 'FAILURE', 'FAILURES'),
        ('Visibility', 'REASON', 'UNSEEN'),
        ('PolicyStatus', 'STATUS', 'STATUSES'),
        ('OperationState', 'PROCEDURE', 'PROCEDURES'),
        ('Progress', 'STAGE', 'STAGES'),
    ],
)
def test_every_word_of_a_message_has_its_sentence(message, prefix, name):
    text = resource(f'msg/{message}.msg').read_text('utf-8')
    words = re.findall(rf'^string {prefix}_\w+="([\w ]+)"', text, re.MULTILINE)
    told = re.findall(r"^  '?([\w ]+?)'?: ['\"]", table(name), re.MULTILINE)
    assert sorted(told) == sorted(words) != []


@pytest.mark.parametrize(
    ('message', 'names'), [('RoundStatus', ('PHASES', 'STANDING')), ('Blame', ('FAULTS',))]
)
def test_every_number_of_a_message_has_its_sentence(message, names):
    text = resource(f'msg/{message}.msg').read_text('utf-8')
    words = re.findall(r'^uint8 (\w+)=\d', text, re.MULTILINE)
    told = re.findall(r'^  (\w+): ', ''.join(map(table, names)), re.MULTILINE)
    assert sorted(told) == sorted(words) != []


@pytest.mark.parametrize('path', OWN, ids=lambda path: path.name)
def test_a_file_loads_nothing_from_elsewhere_and_writes_no_markup(path):
    text = path.read_text('utf-8')
    assert 'SPDX-License-Identifier: Apache-2.0' in text[:300]
    assert not re.search(r'https?://|innerHTML|outerHTML|insertAdjacentHTML|\beval\(', text)
    assert not re.search(r'<script(?![^>]*src=)|<style|\sstyle=|\son\w+="', text)


def test_libraries_of_others_are_unchanged_and_have_their_licences():
    vendor = STATIC / 'vendor'
    told = dict(
        re.findall(
            r'^\| `(\S+)` \|.*\| `(\w{64})` \|',
            (vendor / 'README.md').read_text('utf-8'),
            re.MULTILINE,
        )
    )
    files = {each.name: each for each in vendor.iterdir() if each.suffix in {'.js', '.css'}}
    assert told == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
    }
    for name in ('three', 'uPlot'):
        assert 'Permission is hereby granted' in (vendor / f'{name}.LICENSE.txt').read_text(
            'utf-8'
        )
