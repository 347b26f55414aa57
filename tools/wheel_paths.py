# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Put this machine's include paths into the CMake files of the ROS 2 wheels.

The wheels carry the paths of the machine that built them (Python's and NumPy's headers); CMake
refuses to configure while they name folders that do not exist.
"""

from pathlib import Path
import re

# /opt/python/cp311-cp311/include/python3.11 and
# /opt/python/cp311-cp311/lib/python3.11/site-packages/numpy/_core/include
BUILDER = re.compile(
    r'/opt/python/[^/;"\s]+/(?:'
    r'(?P<python>include/python[0-9.]+)|(?P<numpy>lib/[^;"\s]*?/numpy/(?:_core|core)/include))'
)


def repair(prefix: Path, python_include: str, numpy_include: str) -> int:
    """
    Rewrite the builder's paths below ``prefix``; a second call changes nothing.

    :returns: the number of files rewritten.
    :raises RuntimeError: if a path of the builder is left, or a replacement does not exist.
    """
    for folder, header in ((python_include, 'Python.h'), (numpy_include, 'numpy/arrayobject.h')):
        if not Path(folder, header).is_file():
            raise RuntimeError(f'{header} is not in {folder}')

    def here(match: 're.Match[str]') -> str:
        return python_include if match['python'] else numpy_include

    changed = 0
    for path in sorted(prefix.glob('share/*/cmake/*.cmake')):
        before = path.read_text()
        after = BUILDER.sub(here, before)
        if '/opt/python/' in after:
            raise RuntimeError(f'{path} has a path of the build machine that is not known here')
        if after != before:
            path.write_text(after)
            changed += 1
    return changed
