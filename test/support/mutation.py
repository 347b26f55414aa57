# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Run the package with a planted bug, in a process of its own.

`python -m support.mutation NAME ARGUMENTS` is `fdrl ARGUMENTS` with the bug of that name, and
`pytest -p support.mutation` with the name in FDRL_MUTANT runs tests against it. The sources on the
disk stay as they are: the bug goes into a module while it is imported, or into a copy of the
compiled arithmetic.
"""

import atexit
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
import os
from pathlib import Path
import runpy
import shutil
import subprocess
import sys
import tempfile
from types import CodeType, ModuleType

from support.mutants import Mutant, MUTANTS

ROOT = Path(__file__).resolve().parents[2]
KERNELS = 'fdrl_ros._kernels'
NAME = 'FDRL_MUTANT'
NONE = 'none'
PATIENCE = 300.0  # seconds
AUDIT = (
    '--seeds 1 --noise seeded --rounds 3 --learner-hidden 8 --learner-epochs 8 '
    '--privacy-batch 1 --privacy-noise-multiplier 1.5 --privacy-budget 100 --privacy-delta 1e-5 '
    '--collection-patients 4 --collection-guide expert --evaluation-workers 1 '
    '--world-mode kinematic --world-horizon 8 --audit-canaries 400'
)
"""An audit of 96 steps that takes a second."""


class _Loader(SourceFileLoader):
    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source with the bug; neither read nor write a cache."""
        source = self.mutant.applied(self.get_data(self.path).decode())
        return self.source_to_code(source.encode(), self.path)


class _Finder(MetaPathFinder):
    """Finds one module with a bug in it."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.name = KERNELS if mutant.compiled else mutant.module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module that has the bug; all others are found as ever."""
        if fullname != self.name:
            return None
        if self.mutant.compiled:
            return spec_from_file_location(fullname, _built(self.mutant))
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin)
        spec.loader.mutant = self.mutant
        return spec


def _built(mutant: Mutant) -> Path:
    """Compile the arithmetic with the bug, as if from the sources of this checkout."""
    folder = Path(tempfile.mkdtemp(prefix='mutant'))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    native = shutil.copytree(ROOT / 'native', folder / 'native')
    (folder / 'fdrl_ros').symlink_to(ROOT / 'fdrl_ros')
    digest = runpy.run_path(str(ROOT / 'fdrl_ros/runtime/kernel_sources.py'))['sources_digest']
    builder, source = native / 'build.py', folder / mutant.file
    real = builder.read_text('utf-8').replace('{_digest(HERE)}', digest(ROOT / 'native'))
    builder.write_text(real, 'utf-8')
    source.write_text(mutant.applied(source.read_text('utf-8')), 'utf-8')
    made = subprocess.run(
        [sys.executable, str(builder), str(folder / 'made')],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(made.stdout.split()[-1])


def plant(name: str) -> None:
    """Have the module of a bug imported with it; that of NONE has none."""
    if name == NONE:
        return
    mutant = MUTANTS[name]
    finder = _Finder(mutant)
    assert finder.name not in sys.modules, f'{finder.name} was imported before'
    sys.meta_path.insert(0, finder)


def started(name: str, directory: Path, flags: Sequence[str] = ()) -> subprocess.Popen[str]:
    """
    Begin what should catch a bug.

    :param directory: empty, of the audit.
    :param flags: of the audit command, beside the usual ones and those of the bug.
    """
    mutant, python = MUTANTS.get(name), [sys.executable, '-m']
    if mutant is not None and mutant.test:
        command = [*python, 'pytest', '-p', 'support.mutation', '-p', 'no:cacheprovider', '-q']
        command += ['-x', '--no-header', mutant.test]
    else:
        command = [*python, 'support.mutation', name, 'audit', '--directory', str(directory)]
        command += [*AUDIT.split(), *flags, *(mutant.flags if mutant else ())]
    path = os.pathsep.join([str(ROOT / 'test'), os.environ.get('PYTHONPATH', '')])
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**_surroundings(), NAME: name, 'PYTHONPATH': path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _surroundings() -> dict[str, str]:
    """Return the environment without what tells a pytest above to share its tests out."""
    return {key: value for key, value in os.environ.items() if not key.startswith('PYTEST_')}


def verdict(name: str, process: subprocess.Popen[str]) -> tuple[bool, str]:
    """Return whether a bug was caught by who should, and what that said."""
    said, _ = process.communicate(timeout=PATIENCE)
    mutant = MUTANTS[name]
    if mutant.test:
        return process.returncode == 1 and ' failed' in said, said
    return process.returncode == 3 and mutant.shows in said, said


if os.environ.get(NAME) and 'pytest' in sys.modules and __name__ != '__main__':
    plant(os.environ[NAME])

if __name__ == '__main__':
    plant(sys.argv[1])
    from fdrl_ros.cli import main

    sys.argv[0] = 'fdrl'
    main(sys.argv[2:])
