"""A machine without containers: the settings file, its reload, the systemd unit, and the package in a bare Debian."""

import os
import re
import shutil
import signal
import socket
import subprocess

import pytest
from harness.processes import Background, accepts_connections, run, wait_until
from operate_checks import output_of


@pytest.fixture
def conf(tmp_path, short_directory):
    path = tmp_path / "server.conf"

    def write(**settings):
        lines = {"listen": f"unix:{short_directory / 's.sock'}", "data_dir": tmp_path / "data", **settings}
        path.write_text("# test\n" + "".join(f"{name} = {value}\n" for name, value in lines.items()))
        return path

    write()
    return write


def check(server_binary, *flags, **env):
    return run([server_binary, *flags, "--check_config"], check=False, **env)


def test_check_config_says_what_holds_and_where_it_comes_from(server_binary, conf, short_directory):
    path = conf(retain_days=3, log_level="warning")
    done = check(server_binary, f"--config={path}", "--retain_runs=7", MSPROBE_LOG_LEVEL="error")
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" = ", 1) for line in done.stdout.splitlines())
    assert said["retain_days"] == f"3   ({path})"
    assert said["retain_runs"] == "7   (command line)"
    assert said["log_level"] == "error   (MSPROBE_LOG_LEVEL)"
    assert said["durability"] == "sync   (default)"
    assert not (path.parent / "data").exists(), "nothing is made"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retain_day": 3}, ('there is no setting "retain_day"', "line 4")),
        ({"retain_days": "three"}, ("retain_days = three",)),
        ({"durability": "maybe"}, ("--durability=maybe is not valid", "sync, interval and os")),
        ({"embedded": "true"}, ("embedded stands on the command line only",)),
        ({"tokens": "/nowhere"}, ("/nowhere",)),
        ({"listen": "0.0.0.0:50051"}, ("--insecure",)),
        ({"tls_cert": "/nowhere"}, ("--tls_cert and --tls_key go together",)),
        ({"watch": "loss"}, ("--watch", "NAME=GLOB:STATISTIC")),
    ],
)
def test_a_setting_that_is_wrong_is_named(server_binary, conf, settings, words):
    done = check(server_binary, f"--config={conf(**settings)}")
    assert done.returncode == 2 and done.stdout == ""
    for word in words:
        assert word in done.stderr


def test_a_file_that_is_not_there(server_binary):
    done = check(server_binary, "--config=/nowhere/server.conf")
    assert (done.returncode, done.stderr) == (2, "msprobe-server: --config=/nowhere/server.conf cannot be read\n")


def test_an_environment_variable_that_is_wrong_is_named(server_binary, conf):
    done = check(server_binary, f"--config={conf()}", MSPROBE_MAX_SESSIONS="many")
    assert done.returncode == 2 and "MSPROBE_MAX_SESSIONS" in done.stderr


def test_the_log_level_that_an_agent_has_is_the_servers_too(server_binary, conf):
    done = check(server_binary, f"--config={conf()}", MSPROBE_LOG_LEVEL="1")
    assert done.returncode == 0, done.stderr
    done = check(server_binary, f"--config={conf()}", MSPROBE_LOG_LEVEL="7")
    assert done.returncode == 2 and "--log_level=7 is not valid" in done.stderr


def test_the_environment_of_a_program_does_not_reach_its_own_server(server_binary, tmp_path):
    flags = ("--embedded", f"--listen=unix:{tmp_path}/e", f"--data_dir={tmp_path}/data", "--idle_exit_seconds=0")
    done = check(server_binary, *flags, MSPROBE_LISTEN="0.0.0.0:1")
    assert done.returncode == 0 and f"unix:{tmp_path}/e" in done.stdout


def test_sighup_reads_the_settings_again(server_binary, conf, short_directory, tmp_path):
    path = conf(log_level="info")
    with Background([server_binary, f"--config={path}"], tmp_path / "log") as server:
        server.wait_for(lambda: accepts_connections(short_directory / "s.sock"), 30, "it listens")
        conf(log_level="info", retain_runs=5, memory_limit="512MiB")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(lambda: "settings read again" in server.output, 60, "it read them")
        assert "memory_limit has changed, which takes effect at a restart" in server.output
        conf(retain_runs="-1")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(lambda: "settings stay as they were" in server.output, 60, "it refuses")
        assert "--retain_runs=-1" in server.output
        conf(log_level="error", retain_runs=5)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(lambda: server.output.count("settings read again") >= 1, 60, "it read them")
        server.process.send_signal(signal.SIGTERM)
        server.finish(30)


def test_without_a_file_sighup_ends_it(server_binary, short_directory, tmp_path):
    flags = (f"--listen=unix:{short_directory / 's.sock'}", f"--data_dir={tmp_path / 'data'}")
    with Background([server_binary, *flags], tmp_path / "log") as server:
        server.wait_for(lambda: accepts_connections(short_directory / "s.sock"), 30, "it listens")
        server.process.send_signal(signal.SIGHUP)
        server.finish(30)


def test_a_probe_says_whether_a_server_serves(server_binary, conf, short_directory, tmp_path):
    address = f"unix:{short_directory / 's.sock'}"
    missing = run([server_binary, f"--probe={address}"], check=False)
    assert missing.returncode == 1 and address in missing.stderr
    (tmp_path / "tokens").write_text("admin operator 0123456789abcdef0123456789abcdef\n")
    path = conf(tokens=tmp_path / "tokens")
    with Background([server_binary, f"--config={path}"], tmp_path / "log") as server:
        server.wait_for(lambda: accepts_connections(short_directory / "s.sock"), 30, "it listens")
        done = run([server_binary, f"--probe={address}"])
        assert (done.stdout, done.stderr) == ("", ""), "health needs no token"


def test_the_service_manager_hears_when_it_is_ready(server_binary, conf, tmp_path, short_directory):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(short_directory / "n"))
        manager.settimeout(30)
        command = [server_binary, f"--config={conf()}"]
        with Background(command, tmp_path / "log", NOTIFY_SOCKET=short_directory / "n") as server:
            assert manager.recv(100) == b"READY=1"
            assert accepts_connections(short_directory / "s.sock"), "ready means that it takes connections"
            server.process.send_signal(signal.SIGHUP)
            assert [manager.recv(100), manager.recv(100)] == [b"RELOADING=1", b"READY=1"]
            server.process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            server.finish(30)


def test_the_journal_gets_severities(server_binary, conf, tmp_path, short_directory):
    log = tmp_path / "journal"
    with log.open("wb") as stream:
        found = os.fstat(stream.fileno())
        where = {**os.environ, "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        process = subprocess.Popen([server_binary, f"--config={conf()}"], stderr=stream, env=where)
        try:
            wait_until(lambda: accepts_connections(short_directory / "s.sock"), 30, "it listens")
        finally:
            process.terminate()
            process.wait(30)
    assert re.match(rb"<6>msprobe-server \S+ on unix:", log.read_bytes())


def test_the_unit_is_right_and_confined(deploy, tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here: Debian package systemd")
    unit = tmp_path / "msprobe-server.service"
    text = (deploy / "systemd" / "msprobe-server.service").read_text()
    unit.write_text(text.replace("/usr/bin/msprobe-server", "/bin/true"))
    done = run([analyze, "verify", "--man=no", unit], check=False)
    assert "msprobe-server.service" not in done.stderr, done.stderr
    said = run([analyze, "security", "--offline=yes", "--no-pager", unit], check=False)
    exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", said.stdout)[1])
    assert exposure < 2.5, said.stdout


def test_the_settings_that_are_installed_are_right(deploy, server_binary, tmp_path):
    text = (deploy / "systemd" / "server.conf").read_text()
    path = tmp_path / "server.conf"
    path.write_text(text.replace("/var/lib/msprobe", str(tmp_path)).replace("/run/msprobe", str(tmp_path)))
    output_of(server_binary, f"--config={path}", "--check_config")
    # An example in the file is a setting, too.
    every = output_of(server_binary, f"--config={path}", "--check_config")
    for name in re.findall(r"^#(\w+) = ", text, re.MULTILINE):
        assert f"\n{name} = " in every, name


@pytest.mark.timeout(600)
def test_the_package_runs_on_a_bare_debian(packages, bare_debian, client, short_directory, tmp_path):
    """A Debian of its essential packages alone: install, start as the package's user, stream in, remove."""
    root = bare_debian(short_directory / "root")
    assert not list((root / "usr/lib").rglob("libgrpc*")), "nothing of ours is there before"
    shutil.copy(packages["deb"], root / "package.deb")
    said = output_of("chroot", root, "dpkg", "--install", "/package.deb")
    assert "msprobe" in (root / "etc/passwd").read_text(), said
    for name in ("run/msprobe", "var/lib/msprobe"):
        (root / name).mkdir(parents=True, exist_ok=True)
        output_of("chroot", root, "chown", "msprobe:msprobe", f"/{name}")
    config = (root / "etc/msprobe/server.conf").read_text()
    config = re.sub(r"(?m)^(metrics_listen = .*|listen = .*)$", "", config) + "listen = unix:/run/msprobe/server.sock\n"
    (root / "etc/msprobe/server.conf").write_text(config)
    # A program's own place, from which it finds its libraries, is known from /proc.
    enter = f'mount -t proc proc {root}/proc && exec chroot --userspec=msprobe:msprobe {root} "$@"'
    server_command = ("/usr/bin/msprobe-server", "--config=/etc/msprobe/server.conf")
    command = ["unshare", "--mount", "sh", "-c", enter, "sh", *server_command]
    with Background(command, tmp_path / "server.log") as server:
        path = root / "run/msprobe/server.sock"
        server.wait_for(lambda: accepts_connections(path), 60, "it listens")
        uid = int(re.search(r"^msprobe:[^:]*:(\d+):", (root / "etc/passwd").read_text(), re.MULTILINE)[1])
        assert path.stat().st_uid == uid != 0
        listed = run([client, "--server", f"unix:{path}", "doctor", "--format", "json"], check=False)
        assert '"check":"version"' in listed.stdout.replace('": "', '":"'), listed.stdout
        server.process.send_signal(signal.SIGTERM)
        server.finish(60)
    output_of("chroot", root, "dpkg", "--remove", "msprobe-server")
    assert not (root / "usr/bin/msprobe-server").exists()
    assert (root / "var/lib/msprobe/data").is_dir(), "what was stored stays"
