# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Find and parse the files that belong to an installation: urdf/, config/ and others."""

from importlib import metadata
import os
from pathlib import Path
import re
from typing import Any

from fdrl_ros.errors import ResourceError
import yaml

PACKAGE = 'fdrl_ros'

_YAML_LOADER = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)  # in C ten times as fast


def roots() -> list[Path]:
    """List the folders that may hold our files: the source, a wheel, then each ament prefix."""
    package = Path(__file__).resolve().parent
    return [
        package.parent,
        package / '_share',
        *(each / 'share' / PACKAGE for each in prefixes()),
    ]


def prefixes() -> list[Path]:
    """List the ament prefixes, in which ROS packages are installed."""
    return [
        Path(each) for each in os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep) if each
    ]


def resource(name: str) -> Path:
    """
    Return the path of a file or folder of this package, such as ``urdf/psm.urdf``.

    The files beside this very code come first, so that code and files are of one version.

    :param name: path below the package's share folder.
    :raises ResourceError: if no installation has it, saying where it was looked for.
    """
    tried = [root / name for root in roots()]
    for each in tried:
        if each.exists():
            return each
    places = ', '.join(str(each) for each in tried)
    raise ResourceError(f'{name} is not part of this installation: looked for {places}')


def package_version() -> str:
    """Return the version of this package: that of package.xml, or of the installed wheel."""
    try:
        found = re.search(r'<version>(.*?)</version>', resource('package.xml').read_text('utf-8'))
        if found:
            return found.group(1)
    except (OSError, ResourceError):
        pass
    return installed_version('fdrl_ros')


def installed_version(name: str) -> str:
    """Return the version of a package that pip installed, or 'unknown'."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return 'unknown'


def executable(package: str, name: str) -> Path:
    """
    Return the path of an executable of a ROS package.

    :raises ResourceError: if no ament prefix has it.
    """
    for prefix in prefixes():
        path = prefix / 'lib' / package / name
        if os.access(path, os.X_OK):
            return path
    raise ResourceError(f'{package} is not installed: no {name} in AMENT_PREFIX_PATH')


def parse_yaml(text: str) -> Any:
    """
    Return what a YAML document holds.

    :raises yaml.YAMLError: if it is none.
    """
    return yaml.load(text, _YAML_LOADER)
