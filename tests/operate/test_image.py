"""The server's image: linted, built without a container engine, started as the manifests say, and streamed into."""

import pathlib
import re
import shutil
import signal
import sys

import pytest
import yaml
from harness.dumps import write_config
from harness.processes import REPOSITORY, run, wait_until
from operate_checks import output_of


def test_dockerfile_passes_the_linter(deploy):
    linter = REPOSITORY / ".venv" / "bin" / "hadolint"
    if not linter.exists():
        pytest.skip("hadolint is not here: make test-operate installs it")
    assert output_of(linter, deploy / "docker" / "Dockerfile") == ""


def test_dockerfile_and_manifests_agree(deploy, make_image):
    text = (deploy / "docker" / "Dockerfile").read_text()
    pod = yaml.safe_load((deploy / "kubernetes" / "base" / "statefulset.yaml").read_text())["spec"]["template"]["spec"]
    user = pod["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in text and user == make_image.USER
    assert pod["containers"][0]["resources"]["limits"]["memory"] == f"{make_image.MEMORY >> 30}Gi"
    ports = {str(port["containerPort"]) for port in pod["containers"][0]["ports"]}
    assert set(re.search(r"^EXPOSE (.*)$", text, re.MULTILINE)[1].split()) == ports
    # What the first stage copies is there.
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for name in source.split():
            assert name == "stage" or (REPOSITORY / name).exists(), name


@pytest.mark.timeout(600)
def test_the_image_takes_a_run(image, make_image, tmp_path, short_directory, client, ask, server_binary):
    data, sockets = short_directory / "d", short_directory / "r"
    data.mkdir()
    sockets.mkdir()
    address = f"unix:{sockets / 'server.sock'}"
    with make_image.running(image, data, sockets) as server:
        wait_until(lambda: make_image.serves(sockets / "server.sock"), 60, "the server in the image listens")
        run([server_binary, f"--probe={address}"])
        assert (sockets / "server.sock").stat().st_uid == make_image.USER
        config = write_config(tmp_path / "config.json", tmp_path / "dump", level="mix", server=address, run="in-image")
        program = REPOSITORY / "tests" / "operate" / "programs" / "overflowing.py"
        run([sys.executable, program, "--config", config, "--steps", 3])
        (summary,) = ask("runs", server=address)
        assert (summary["run"], summary["steps"], summary["open_sessions"]) == ("in-image", 3, 0)
        status = next(
            path.read_text() for path in processes_of(server.pid) if "msprobe-server" in path.read_text().split("\n")[0]
        )
        assert re.search(rf"^Uid:\s+{make_image.USER}\s", status, re.MULTILINE)
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE) and re.search(
            r"^NoNewPrivs:\s+1$", status, re.MULTILINE
        )
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    assert server.returncode == 0
    inspect = make_image.buildah("inspect", "--type", "image", image)
    assert "org.opencontainers.image.version" in inspect


def processes_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pathlib.Path(f"/proc/{each}/status") for each in (pid, *children)]


def test_the_first_stage_has_all_that_its_configuration_reads(deploy, tmp_path):
    """Only the paths of COPY are configured, with the flags of the stage; compiling them is the build's own test."""
    text = (deploy / "docker" / "Dockerfile").read_text()
    for sources, target in re.findall(r"^COPY (?!--from|stage)(.*) (/\S+)$", text, re.MULTILINE):
        for name in sources.split():
            place = tmp_path / target.lstrip("/")
            if (REPOSITORY / name).is_dir():
                shutil.copytree(REPOSITORY / name, place)
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(REPOSITORY / name, place)
    flags = re.search(r"cmake -S \. -B build (.*?) \\$", text, re.MULTILINE)[1].split()
    output_of("cmake", "-S", ".", "-B", "build", *flags, cwd=tmp_path / "source")
    assert "msprobe-server" in output_of("ninja", "-C", "build", "-t", "targets", "all", cwd=tmp_path / "source")
