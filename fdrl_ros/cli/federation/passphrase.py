# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How commands are told the passphrase of the keys: by a file, or by who sits at the terminal."""

from pathlib import Path
import sys

import click
from fdrl_ros.crypto.keys.key_file import label, Passphrase
from fdrl_ros.crypto.keys.keystore import load_passphrase, PASSPHRASE_VARIABLE
from fdrl_ros.crypto.keys.rotation import private_keys
from fdrl_ros.runtime.durable import read_secret

FILE = click.Path(dir_okay=False, path_type=Path)

passphrase_option = click.option(
    '--passphrase-file',
    type=FILE,
    help=f'File of mode 0600 with the passphrase of the keys.  [default: ${PASSPHRASE_VARIABLE}]',
)


def read_passphrase(file: Path | None, directory: Path | None = None) -> Passphrase | None:
    """
    Return the passphrase that a file holds, or ask for it where somebody is there to answer.

    :param directory: of keys, of which some may be encrypted; nobody is asked without it.
    """
    found = load_passphrase(file)
    if found is None and directory is not None and sys.stdin.isatty():
        paths = [directory / name for name in private_keys(directory)]
        if any(label(read_secret(path), path).sealed for path in paths):
            return ask_passphrase('Passphrase', confirm=False)
    return found


def ask_passphrase(what: str, *, confirm: bool) -> Passphrase:
    """Ask for a passphrase at the terminal."""
    typed: str = click.prompt(what, hide_input=True, confirmation_prompt=confirm)
    return Passphrase(typed.encode())
