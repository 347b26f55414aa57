# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Print which tests did not run: those that were skipped, and those that only run nightly."""

import ast
from collections.abc import Iterator
from pathlib import Path
import re
import sys
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent


def skipped(results: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each skipped test of pytest's result files, and the reason."""
    for path in sorted(results.rglob('*.xunit.xml')):
        for case in ElementTree.parse(path).iter('testcase'):
            for found in case.findall('skipped'):
                where = f'{case.get("classname", "")}.{case.get("name", "")}'.strip('.')
                reason = found.get('message') or ''
                if reason == 'collection skipped':  # the reason is at the end of a tuple's text
                    text = (found.text or '').strip()
                    reason = text.rpartition("'Skipped: ")[2].removesuffix("')") or reason
                yield where, reason


def nightly(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each file of tests that `make nightly` alone runs, and what it is about."""
    for path in sorted(folder.glob('test_*.py')):
        text = ast.get_docstring(ast.parse(path.read_text())) or ''
        yield path.name, ' '.join(text.partition('\n\n')[0].split())


def report(results: Path) -> list[str]:
    """Return the lines to print."""
    lines = [f'  {name}: {reason}' for name, reason in skipped(results)]
    lines = ['Skipped tests:', *(lines or ['  none'])]
    lines += ['Not run, only by `make nightly`:']
    lines += [f'  {name}: {text}' for name, text in nightly(ROOT / 'test/nightly')]
    sampled = re.search(
        r'^SAMPLED = \$\(addprefix (.*),(.*)\)$', (ROOT / 'Makefile').read_text(), re.M
    )
    if sampled:
        lines += ['Run on a sample, in full only by `make nightly`:']
        lines += [f'  {sampled[1]}{name}' for name in sampled[2].split()]
    return lines


if __name__ == '__main__':
    print('\n'.join(report(Path(sys.argv[1]))))
