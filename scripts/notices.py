"""LICENSE and NOTICE of an artefact: our licence, and the licence and copyright notices of each library it carries.

The NOTICE is the one of the source tree, then a section a library: its name and version, its licence as an SPDX
expression, its files, the place of its source, and its copyright file as installed on the machine that built the
artefact.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path

from third_party import ROOT, Library

OURS = "Apache-2.0"
WIDTH = 100
HEAVY, LIGHT = "=" * WIDTH, "-" * WIDTH
CARRIES = """\
The rest of this file is about what {product} carries of others. A text comes from its package as it is, and may also
speak of tests, tools and packaging, which are not carried; the line "Licence" is about what is. Where a text refers to
/usr/share/common-licenses/Apache-2.0, the file LICENSE beside this one has the same words.

The GNU libraries (libc, libstdc++, libgcc_s) are used from the machine that runs it, never carried. What their headers
and the kernel's bring into a program is free of conditions by the exceptions that they state.
"""


def expression(libraries: Sequence[Library]) -> str:
    """The SPDX expression of an artefact with these libraries."""
    parts = {part for library in libraries for part in library.licence.split(" AND ")} - {OURS}
    return " AND ".join([OURS, *sorted(parts)])


def section(library: Library) -> str:
    lines = [f"{library.name} {library.version}", f"Licence: {library.licence}"]
    if library.files:
        names = ", ".join(sorted(Path(each).name for each in library.files))
        lines.append(textwrap.fill(f"Shared objects: {names}", WIDTH, subsequent_indent="  ", break_on_hyphens=False))
    if library.compiled_in:
        lines.append("Compiled in: its headers")
    if library.purl.startswith("pkg:deb/"):
        lines.append(f"Source: Debian 12, apt-get source {library.name}={library.version}")
    else:
        lines.append(f"Source: {library.purl}")
    texts = list(dict.fromkeys(path.read_text(encoding="utf-8").strip() for path in sorted(library.texts)))
    named = {part for part in re.split(r"[ ()]", library.licence) if part not in ("AND", "WITH")}
    for missing in {found for text in texts for found in re.findall(r"common-licenses/([\w.-]*\w)", text)} & named:
        if missing != OURS:
            raise SystemExit(f"notices: {library.name} is under {missing}, whose text no file of ours has")
    return "\n".join([HEAVY, *lines, LIGHT, f"\n{LIGHT}\n".join(texts), ""])


def notice(product: str, libraries: Sequence[Library]) -> str:
    own = (ROOT / "NOTICE").read_text(encoding="utf-8")
    if not libraries:
        return own
    return "\n".join([own, CARRIES.format(product=product), *map(section, libraries)])


def write(folder: Path, product: str, libraries: Sequence[Library]) -> None:
    """Writes LICENSE and NOTICE into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    (folder / "NOTICE").write_text(notice(product, libraries), encoding="utf-8")
