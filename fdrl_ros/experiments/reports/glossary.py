# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What every number of a report means, as docs/glossary.md says it.

A section of that page is a definition; its line "In tables:" lists the headings that it explains.
"""

from functools import cache
import re
from typing import NamedTuple

from fdrl_ros.errors import ResourceError
from fdrl_ros.resources import resource

PAGE = 'docs/glossary.md'
_IN_TABLES = re.compile(r'^In tables: (.+?)\.$', re.MULTILINE | re.DOTALL)
_LINK = re.compile(r'\[([^]]+)\]\([^)]*\)')


class Definition(NamedTuple):
    """A term, and what it means in plain text."""

    term: str
    words: str


@cache
def definitions() -> dict[str, Definition]:
    """
    Read every definition, by the headings in small letters that it explains.

    :raises ResourceError: if the glossary is not part of this installation, or says something
        twice.
    """
    found: dict[str, Definition] = {}
    for section in resource(PAGE).read_text('utf-8').split('\n### ')[1:]:
        term, _, text = section.partition('\n')
        headings = [term, *re.split(' and |, ', term)]
        if listed := _IN_TABLES.search(text):
            headings += re.findall(r'`([^`]+)`', ' '.join(listed[1].split()))
            text = text.replace(listed[0], '')
        paragraph = text.strip().split('\n\n|')[0]
        words = ' '.join(_LINK.sub(r'\1', paragraph).replace('`', '').split())
        for each in dict.fromkeys(map(str.lower, headings)):
            if each in found and each != 'sofa':
                raise ResourceError(f'{PAGE} explains {each!r} twice')
            found[each] = Definition(term, words)
    return found


def definition(heading: str) -> Definition | None:
    """
    Find what the heading of a column means; None if nobody says.

    Units and conditions behind the name do not matter: "success, %" is "success".
    """
    known, heading = definitions(), heading.lower().strip()
    for end in ('', r' \(.*', r'(,| =| in ).*', r' at .*', r' (minus|by|for|of) .*'):
        if found := known.get(re.sub(f'{end}$', '', heading) if end else heading):
            return found
    return None
