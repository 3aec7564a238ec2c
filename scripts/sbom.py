"""The software bill of materials of an artefact, CycloneDX 1.6 as JSON: ARTEFACT.cdx.json beside it.

It lists the libraries in the artefact, each by its source package and with its files, and not those that an installer
would add. The same artefact gives the same file, but for the time in it (SOURCE_DATE_EPOCH, else now).
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from notices import expression
from third_party import Library


@dataclasses.dataclass(frozen=True)
class Package:
    """A package of the image's system; its licence is in its own copyright file in the image."""

    name: str
    version: str
    purl: str


def sha256(path: Path) -> list[dict[str, str]]:
    with path.open("rb") as file:
        return [{"alg": "SHA-256", "content": hashlib.file_digest(file, "sha256").hexdigest()}]


def component(library: Library, tree: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": library.purl,
        "name": library.name,
        "version": library.version,
        "purl": library.purl,
        "licenses": [{"expression": library.licence}],
    }
    if library.files:
        found["components"] = [
            {"type": "file", "name": name, "hashes": sha256(tree / name)} for name in sorted(library.files)
        ]
    return found


def write(
    artefact: Path,
    *,
    name: str,
    version: str,
    kind: str,
    purl: str,
    tree: Path,
    libraries: Sequence[Library],
    packages: Iterable[Package] = (),
) -> Path:
    """`kind` is CycloneDX's word for the whole (application, library, container); `tree` has the libraries' files."""
    components = [component(library, tree) for library in libraries]
    components += [
        {"type": "library", "bom-ref": each.purl, "name": each.name, "version": each.version, "purl": each.purl}
        for each in packages
    ]
    hashes = sha256(artefact)
    when = datetime.datetime.fromtimestamp(
        int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now().timestamp())), datetime.UTC
    )
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, purl + hashes[0]['content'])}",
        "version": 1,
        "metadata": {
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": kind,
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                "hashes": hashes,
                "licenses": [{"expression": expression(libraries)}],
            },
        },
        "components": components,
        "dependencies": [
            {"ref": purl, "dependsOn": [each["bom-ref"] for each in components]},
            *({"ref": each["bom-ref"]} for each in components),
        ],
    }
    path = artefact.with_name(f"{artefact.name}.cdx.json")
    path.write_text(json.dumps(bom, indent=1) + "\n", encoding="utf-8")
    return path
