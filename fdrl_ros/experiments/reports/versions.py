# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Versions of everything that numbers depend on."""

from importlib import metadata
import platform
import re

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
