"""Every artefact has its licence, a text for each third-party library in it, and a bill of materials beside it."""

import email
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import zipfile

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from harness.processes import REPOSITORY
from license_expression import get_spdx_licensing
from operate_checks import output_of

OURS = ("msprobe-server", "_agent.", "_mindspore.", "libmsprobe_messages.")
# libc, libm, ... and the compiler's: there on every Linux, under licences of their own, and never ours to hand on.
SYSTEM = re.compile(r"^(ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|quadmath)[.-])")
MAY_BE_CARRIED = {
    *(
        "Apache-2.0",
        "MIT",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "0BSD",
        "BSL-1.0",
        "ISC",
        "Zlib",
        "PSF-2.0",
        "bzip2-1.0.6",
        "dtoa",
        "blessing",
    ),
    "fmt-exception",
}
WHEELS = ("agent", "server", "client")
SERVERS = ("server", "deb", "tarball", "image")
ALL = (*WHEELS, "sdist", "deb", "tarball", "image")


def unpack_wheel(path, folder):
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)


def unpack_tarball(path, folder):
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")


def unpack_package(path, folder):
    output_of("dpkg-deb", "--extract", path, folder)


def unpack_image(path, folder):
    """The layers of an OCI archive, one on the other."""
    blobs = folder.with_name("blobs")
    blobs.mkdir()
    output_of("tar", "--extract", "--file", path, "--directory", blobs)

    def blob(descriptor):
        return blobs / "blobs" / descriptor["digest"].replace(":", "/")

    index = json.loads((blobs / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]).read_text())
    for layer in manifest["layers"]:
        output_of(
            "tar", "--extract", "--file", blob(layer), "--directory", folder, "--exclude=dev/*", "--exclude=./dev/*"
        )
    config = json.loads(blob(manifest["config"]).read_text())
    (folder / "image.json").write_text(json.dumps(config["config"]))
    shutil.rmtree(blobs)


class Artefact:
    def __init__(self, path, tree, kind):
        self.path, self.tree, self.kind = path, tree, kind
        documents = {
            "sdist": "msprobe_client-*",
            "deb": "usr/share/doc/msprobe-server",
            "tarball": "msprobe-server-*/usr/share/doc/msprobe-server",
            "image": "usr/local/share/doc/msprobe-server",
        }
        (self.documents,) = tree.glob(documents.get(kind, "*.dist-info/licenses"))
        self.notice = (self.documents / "NOTICE").read_text(encoding="utf-8")
        self.bill = json.loads(path.with_name(f"{path.name}.cdx.json").read_text())

    def metadata(self):
        (found,) = self.tree.glob("*/PKG-INFO" if self.kind == "sdist" else "*.dist-info/METADATA")
        return email.message_from_string(found.read_text(encoding="utf-8"))

    def expression(self):
        """The licence as the artefact itself says it; a Debian package and a tarball have their NOTICE alone."""
        if self.kind in (*WHEELS, "sdist"):
            return self.metadata()["License-Expression"]
        if self.kind == "image":
            labels = json.loads((self.tree / "image.json").read_text())["Labels"]
            return labels["org.opencontainers.image.licenses"]
        return self.bill["metadata"]["component"]["licenses"][0]["expression"]

    def shared_objects(self):
        """Every ELF file in it but our own programs."""
        for path in sorted(self.tree.rglob("*")):
            if path.is_file() and not path.is_symlink() and not path.name.startswith(OURS):
                with path.open("rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path

    def of_others(self):
        """The libraries that an artefact carries itself: not the packages of Debian in an image."""
        top = self.tree / "usr" / "local" if self.kind == "image" else self.tree
        return [path for path in self.shared_objects() if path.is_relative_to(top)]

    def sections(self):
        """Third-party libraries by name: the head of their section, and the text."""
        found = {}
        for part in re.split(r"^={50,}\n(?=\S+ \S[^\n]*\nLicence: )", self.notice, flags=re.MULTILINE)[1:]:
            head, _, text = part.partition("\n" + "-" * 50)
            found[head.split()[0]] = (head, text)
        return found


@pytest.fixture(scope="session")
def artefacts(wheels, packages, image, make_image, tmp_path_factory):
    archive = REPOSITORY / "dist" / f"msprobe-server-{make_image.version()}.oci.tar"
    made = {}
    for kind, path in {**wheels, **packages, "image": archive}.items():
        tree = tmp_path_factory.mktemp("artefacts") / kind
        tree.mkdir()
        unpack = {"sdist": unpack_tarball, "tarball": unpack_tarball, "deb": unpack_package, "image": unpack_image}
        unpack.get(kind, unpack_wheel)(path, tree)
        made[kind] = Artefact(path, tree, kind)
    yield made
    for each in made.values():
        shutil.rmtree(each.tree)


@pytest.fixture(params=ALL)
def artefact(artefacts, request):
    return artefacts[request.param]


@pytest.mark.timeout(1800)
def test_it_has_our_licence(artefact):
    for name in ("LICENSE", "NOTICE"):
        own = (REPOSITORY / name).read_bytes()
        inside = artefact.documents / name
        assert not inside.is_symlink() and inside.read_bytes().startswith(own), inside
    expression = artefact.expression()
    assert expression.split(" AND ")[0] == "Apache-2.0"
    parsed = get_spdx_licensing().validate(expression)
    assert not parsed.errors, parsed.errors


@pytest.mark.parametrize("kind", [*WHEELS, "sdist"])
def test_metadata_names_the_files(artefacts, kind):
    metadata = artefacts[kind].metadata()
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert tuple(map(int, metadata["Metadata-Version"].split("."))) >= (2, 4)


def test_every_shared_object_has_its_text(artefact):
    texts = {}
    for head, text in artefact.sections().values():
        names = re.search(r"^Shared objects: (.*(?:\n  .*)*)", head, re.MULTILINE)
        for name in re.findall(r"[^\s,]+", names[1]) if names else ():
            texts[name] = text
    carried = artefact.of_others()
    if artefact.kind in (*SERVERS, "agent"):
        assert len(carried) > 20, "gRPC and what it needs is carried"
    else:
        assert carried == []
    for path in carried:
        assert path.name in texts, f"{path.name} has no section in NOTICE"
        assert len(texts[path.name]) > 500 and re.search("copyright|©", texts[path.name], re.IGNORECASE), path.name
    assert set(texts) == {path.name for path in carried}, "no section of what is not there"


def test_nothing_of_the_systems_own_is_carried(artefact):
    assert [path for path in artefact.of_others() if SYSTEM.match(path.name)] == []


@pytest.mark.parametrize(("kind", "names"), [("agent", "torch pybind11 cpython rapidjson"), ("server", "rapidjson")])
def test_headers_that_are_compiled_in_have_their_text(artefacts, kind, names):
    sections = artefacts[kind].sections()
    for name in names.split():
        head, text = sections[name]
        assert "\nCompiled in: its headers" in head and "Shared objects" not in head
        assert len(text) > 500 and "copyright" in text.lower(), name


def test_nothing_is_carried_whose_licence_asks_for_more_than_a_notice(artefact):
    parts = set(re.split(r" AND | WITH ", artefact.expression()))
    said = {part for head, _ in artefact.sections().values() for part in re.split(" AND | WITH ", licence_of(head))}
    assert said | {"Apache-2.0"} == parts
    assert parts <= MAY_BE_CARRIED


def licence_of(head):
    return re.search(r"^Licence: (.*)$", head, re.MULTILINE)[1]


def test_the_bill_of_materials_is_right(artefact):
    path = artefact.path.with_name(f"{artefact.path.name}.cdx.json")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(path.read_text()) is None
    whole = artefact.bill["metadata"]["component"]
    assert whole["hashes"] == [{"alg": "SHA-256", "content": digest(artefact.path)}]
    assert whole["version"] in artefact.path.name
    assert whole["licenses"] == [{"expression": artefact.expression()}]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_bill_lists_every_library(artefact):
    components = artefact.bill["components"]
    files = {
        file["name"].rpartition("/")[2]: file["hashes"][0]["content"]
        for component in components
        for file in component.get("components", ())
    }
    assert files == {path.name: digest(path) for path in artefact.of_others()}
    if artefact.kind == "image":
        components = [each for each in components if "licenses" in each]
    said = {name: licence_of(head) for name, (head, _) in artefact.sections().items()}
    assert {each["name"]: each["licenses"][0]["expression"] for each in components} == said
    for each in components:
        assert re.match(r"pkg:(deb/debian|pypi|generic)/[\w.+-]+@", each["purl"]), each


def test_the_system_in_the_image_has_its_own_texts(artefacts):
    """The files outside /usr/local are Debian's packages: each ELF file is of one, whose copyright file is there."""
    image = artefacts["image"]
    owner = {}
    for path in (image.tree / "var/lib/dpkg/info").glob("*.list"):
        for line in path.read_text().splitlines():
            owner[line] = owner[line.removeprefix("/usr")] = path.stem.partition(":")[0]
    carried = set(image.of_others())
    seen = set()
    for path in image.shared_objects():
        if path not in carried:
            name = f"/{path.relative_to(image.tree)}"
            package = owner.get(name) or owner.get(name.removeprefix("/usr"))
            assert package, f"{name} is of no package"
            seen.add(package)
    assert "libstdc++6" in seen
    for package in seen:
        assert (image.tree / "usr/share/doc" / package / "copyright").exists(), package
    listed = {each["name"] for each in image.bill["components"] if "licenses" not in each}
    assert seen <= listed


def test_the_package_says_in_debians_way_whose_it_is(artefacts):
    text = (artefacts["deb"].documents / "copyright").read_text()
    assert text.startswith("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n")
    assert re.search(r"^Files: \*\nCopyright: .*\nLicense: Apache-2.0$", text, re.MULTILINE)


def libraries_of(tree, *, without=""):
    """Output of scripts/third_party.py for a tree, without one line of licences.toml."""
    program = f"""
import pathlib, third_party
third_party.licences()["debian"].pop({without!r}, None)
print(*(each.name for each in third_party.libraries(pathlib.Path({str(tree)!r}), [], third_party.ROOT / "build")))
"""
    python = REPOSITORY / ".venv" / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "scripts")}
    return subprocess.run([python, "-c", program], env=environment, text=True, capture_output=True, check=False)


def test_a_library_whose_licence_nobody_read_is_refused(tmp_path):
    (library,) = output_of("sh", "-c", "ldconfig -p | sed -n 's/.*libz.so.1 .*=> //p'").split()
    shutil.copy(library, tmp_path / "libz-0123abcd.so.1")
    assert libraries_of(tmp_path).stdout == "zlib\n"
    refused = libraries_of(tmp_path, without="zlib")
    assert refused.returncode != 0
    assert "Debian's zlib" in refused.stderr and "no line in scripts/licences.toml" in refused.stderr
    assert "/usr/share/doc/zlib1g/copyright" in refused.stderr


def test_a_library_from_nowhere_is_refused(tmp_path):
    (library,) = output_of("sh", "-c", "ldconfig -p | sed -n 's/.*libz.so.1 .*=> //p'").split()
    shutil.copy(library, tmp_path / "libnobody.so.7")
    refused = libraries_of(tmp_path)
    assert refused.returncode != 0 and "libnobody.so.7 is in no library folder" in refused.stderr


def test_the_systems_own_libraries_are_refused(tmp_path):
    # A machine with libraries for a second architecture has one for each.
    library, *_ = output_of("sh", "-c", "ldconfig -p | sed -n 's/.*libgcc_s.so.1 .*=> //p'").split()
    shutil.copy(library, tmp_path / "libgcc_s.so.1")
    refused = libraries_of(tmp_path)
    assert refused.returncode != 0 and "not to be carried along" in refused.stderr


def test_copies_of_our_licence_are_the_same():
    for name in ("LICENSE", "NOTICE"):
        for room in ("agent", "server", "client_py"):
            assert (REPOSITORY / room / name).read_bytes() == (REPOSITORY / name).read_bytes()
    # The client's sdist is made of its own folder: a link would lead out of it.
    assert not (REPOSITORY / "client_py" / "LICENSE").is_symlink()
