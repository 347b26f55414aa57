# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `make test` prints at its end of the tests that did not run."""

import os
from pathlib import Path
import subprocess
import sys

ROOT = Path(__file__).resolve().parents[2]


def test_skipped_and_nightly_tests_are_listed_with_reasons(tmp_path: Path) -> None:
    (tmp_path / 'test_of_three.py').write_text(
        'import pytest\n'
        'def test_runs(): pass\n'
        'def test_needs_a_robot(): pytest.skip("no robot here")\n'
    )
    (tmp_path / 'test_of_torch.py').write_text(
        'import pytest\npytest.importorskip("no_such_module", reason="no torch here")\n'
    )
    results = tmp_path / 'unit.xunit.xml'
    command = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider']
    alone = {
        **os.environ,
        'PYTEST_ADDOPTS': '',
        'PYTEST_DISABLE_PLUGIN_AUTOLOAD': '1',
    }  # CTest shares the unit tests among workers
    told = subprocess.run(
        [*command, '--junitxml', str(results), str(tmp_path)],
        env=alone,
        capture_output=True,
        text=True,
    )
    assert results.is_file(), told.stderr
    script = [sys.executable, str(ROOT / 'tools/list_skipped.py'), str(tmp_path)]
    printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert 'test_of_three.test_needs_a_robot: no robot here' in printed
    assert 'test_of_torch: no torch here' in printed
    assert 'test_runs' not in printed
    nightly = sorted(path.name for path in (ROOT / 'test/nightly').glob('test_*.py'))
    assert all(f'  {name}: ' in printed for name in nightly)
