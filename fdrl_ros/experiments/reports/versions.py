# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Versions of everything that numbers depend on."""

from contextlib import suppress
from pathlib import Path
import platform
import subprocess

from fdrl_ros.resources import installed_version, package_version

LIBRARIES = ('numpy', 'scipy', 'pybullet', 'gymnasium', 'tenseal', 'cryptography')


def commit() -> str:
    """
    Return the git commit of the checkout that this code runs from.

    :returns: its hash, with `-dirty` behind it if files were changed; the version of the package
        where it runs from no checkout, or git is not there.
    """
    root = Path(__file__).resolve().parents[3]
    words = 'describe --always --dirty --abbrev=40 --exclude=*'
    if (root / '.git').exists() and (root / 'package.xml').exists():
        # A checkout may belong to another user, as in a container.
        command = ['git', '-c', f'safe.directory={root}', '-C', str(root), *words.split()]
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
            return done.stdout.strip()
    return package_version()


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of the libraries beneath it."""
    return {
        'fdrl_ros': package_version(),
        'python': platform.python_version(),
        **{name: installed_version(name) for name in LIBRARIES},
    }
