# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Versions of everything that numbers depend on."""

from contextlib import suppress
from importlib import metadata
from pathlib import Path
import platform
import re
import subprocess

from fdrl_ros.errors import ResourceError
from fdrl_ros.resources import resource

LIBRARIES = ('numpy', 'scipy', 'pybullet', 'gymnasium', 'tenseal', 'cryptography')


def package_version() -> str:
    """Return the version of this package: that of package.xml, or of the installed wheel."""
    try:
        found = re.search(r'<version>(.*?)</version>', resource('package.xml').read_text('utf-8'))
        if found:
            return found.group(1)
    except (OSError, ResourceError):
        pass
    return _installed('fdrl_ros')


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
        **{name: _installed(name) for name in LIBRARIES},
    }


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return 'unknown'
