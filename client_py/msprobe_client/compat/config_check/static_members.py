"""The members of a pack that need no model."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib import metadata

from msprobe_client.compat.config_check import pack
from msprobe_client.compat.config_check.hyperparameters import hyperparameters_of
from msprobe_client.shown_values import shown_environment


def static_members(files: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """name -> text of env, pip and, with files, the static hyperparameters; and notes for the user."""
    members = {
        pack.ENVIRONMENT: json.dumps(shown_environment(os.environ), indent=4),
        pack.PACKAGES: "".join(f"{name}={version}\n" for name, version in installed_packages().items()),
    }
    found, notes = hyperparameters_of(files)
    if found:
        members[pack.STATIC] = json.dumps(found, indent=4)
    return members, notes


def installed_packages() -> dict[str, str]:
    """Name -> version, as imports find them: the first on the path counts."""
    found: dict[str, str] = {}
    for package in metadata.distributions():
        name = package.metadata["Name"] if package.metadata else None
        if name:
            found.setdefault(name, package.version)
    return found
