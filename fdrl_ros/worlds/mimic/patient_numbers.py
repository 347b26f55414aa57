# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
One spelling for each patient's number, so that nobody becomes two privacy units.

Programs write a whole number in several ways: 5 becomes 5.0 as soon as a column has a gap, and
05 where a field has a width. Epsilon of a patient would then hold for a part of him alone.
"""

import re
import unicodedata

_WHOLE = re.compile(r'([+-]?)0*(\d+?)(\.0*)?', re.ASCII)
_NUMBER = re.compile(r'[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?', re.ASCII)
_PSEUDONYM = re.compile(r'\d+e\d+', re.ASCII)  # of hexadecimal digits, such as 12e4
_GAPS = frozenset({'', 'nan', 'none', 'null', 'na', '<na>', 'nat', 'n/a'})


def canonical_name(cell: object) -> str:
    """
    Return the one spelling of a patient's or a stay's number or name.

    :param cell: text, or a whole number of Python or NumPy.
    :raises ValueError: with words that do not repeat it, if it names nobody for sure.
    """
    name = unicodedata.normalize('NFKC', str(cell)).strip()
    if name.casefold() in _GAPS:
        raise ValueError('is empty')
    if isinstance(cell, bool) or not name.isprintable():
        raise ValueError('is no name: something in it cannot be seen')
    whole = _WHOLE.fullmatch(name)
    if whole:
        sign, digits = whole[1], whole[2]
        return f'-{digits}' if sign == '-' and digits != '0' else digits
    lower = name.casefold()
    if _NUMBER.fullmatch(lower) and not _PSEUDONYM.fullmatch(lower):
        raise ValueError('is a number, but not a whole one: several patients may share it')
    return name
