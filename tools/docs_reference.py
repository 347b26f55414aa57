# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Generate the API reference of the documentation site: one page for each folder of the package.

A hook of MkDocs (see mkdocs.yml). It lists the modules that exist, so a module that moves needs
no edit here. mkdocstrings reads the docstrings without importing the modules.

Set FDRL_DOCS_PAGES_ONLY to build the site without the reference, in two seconds instead of ten.
"""

import os
from pathlib import Path
import re

import griffe
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / 'fdrl_ros'
SECTION = 'API reference'


def on_config(config):
    """Add the pages of the reference to the navigation."""
    pages = [{name: source(name)} for name in map(dotted, folders())]
    if pages:
        config['nav'] = [*config['nav'], {SECTION: pages}]
    return config


def on_files(files, config):
    """Add the pages of the reference to the site."""
    for folder in folders():
        name = dotted(folder)
        files.append(File.generated(config, source(name), content=page(folder, name)))
    return files


def folders():
    """Return each folder of the package that has modules, in the order of their names."""
    if os.environ.get('FDRL_DOCS_PAGES_ONLY'):
        return []
    return sorted(path.parent for path in PACKAGE.rglob('__init__.py'))


def dotted(folder):
    """Return the name by which Python imports a folder."""
    return '.'.join(folder.relative_to(ROOT).parts)


def source(name):
    """Return the path of a folder's page within the site's sources."""
    return f'reference/{name}.md'


def page(folder, name):
    """Return the page of a folder: each module in it with its public names."""
    modules = [path.stem for path in sorted(folder.glob('*.py')) if not path.name.startswith('_')]
    head = f'# {name}\n\n::: {name}\n    options: {{members: false, show_root_heading: false}}\n'
    return '\n'.join([head, *(f'::: {name}.{each}\n' for each in modules)])


class PlainRoles(griffe.Extension):
    """Turn Sphinx roles in docstrings, such as :class:`Rates`, into code in Markdown."""

    ROLE = re.compile(r':\w+:`~?([^`<]+?)(?:\s*<[^>]+>)?`')

    def on_instance(self, *, obj, **kwargs):
        """Rewrite the docstring of an object that was read."""
        if obj.docstring:
            obj.docstring.value = self.ROLE.sub(r'`\1`', obj.docstring.value)
