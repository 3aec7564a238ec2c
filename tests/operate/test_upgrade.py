"""An older agent with this server, this agent with an older server, and this server on an older server's files.

Recorded sessions of older versions are in operate/older (older_session.py). With MSPROBE_OLDER, the folder of an older
build (scripts/build_older.py), the older programs themselves run, too: the suite `upgrade` of scripts/run_suites.py.
"""

import contextlib
import json
import os
import pathlib
import signal
import sys
import tarfile
import threading
from concurrent import futures

import grpc
import older_session
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet
from harness import answers
from harness.processes import REPOSITORY, Background, accepts_connections, external_server, run

VERSIONS = sorted(path.name for path in (older_session.HERE / "older").iterdir())
HEADER = ("dump_data_dir",)  # where this export lies


@pytest.fixture(params=VERSIONS)
def older(request):
    return older_session.HERE / "older" / request.param


def dumps(folder):
    """Every file of an export, as JSON."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*.json")):
        content = json.loads(path.read_text(), parse_constant=str)
        if path.name == "dump.json":
            content = {key: value for key, value in content.items() if key not in HEADER}
        found[path.relative_to(folder).as_posix()] = content
    return found


def exported(client, socket, folder):
    run([client, "--server", f"unix:{socket}", "export", older_session.RUN, "--output", folder, "--no-tensors"])
    return dumps(folder)


def test_an_older_agents_session_is_taken(older, tmp_path, short_directory, client):
    messages = older_session.read(older / "agent.bin")
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "log") as server:
        welcome, code = older_session.play(f"unix:{short_directory / 's'}", messages)
        assert (welcome.durable_through, code) == (0, grpc.StatusCode.OK), server.output
        assert exported(client, short_directory / "s", tmp_path / "dump") == dumps(older / "dump")
        # Once more, as after an Ack that was lost: without effect.
        welcome, code = older_session.play(f"unix:{short_directory / 's'}", messages)
        assert code == grpc.StatusCode.OK and welcome.durable_through > 0
        assert exported(client, short_directory / "s", tmp_path / "again") == dumps(older / "dump")


def test_this_server_goes_on_where_an_older_one_was_killed(older, tmp_path, short_directory, client):
    """Its data directory is read, and its agent, which has freed what it acknowledged, sends the rest."""
    with tarfile.open(older / "half.tar.gz") as archive:
        archive.extractall(tmp_path / "data", filter="data")
    messages = older_session.read(older / "agent.bin")
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "log") as server:
        welcome, code = older_session.play(f"unix:{short_directory / 's'}", messages)
        batches = [m for m in messages if older_session.ingest().AgentMessage.FromString(m).HasField("batch")]
        assert 0 < welcome.durable_through < len(batches), "the older server's half is there"
        assert code == grpc.StatusCode.OK, server.output
        assert exported(client, short_directory / "s", tmp_path / "dump") == dumps(older / "dump")


def unknown_fields(message, path=""):
    """Names of fields that an older reader does not know."""
    found = [f"{path or message.DESCRIPTOR.name}: field {each.field_number}" for each in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is not None:
            repeated = value if field.is_repeated else [value]
            for each in repeated:
                found += unknown_fields(each, f"{path}.{field.name}".strip("."))
        elif field.enum_type is not None:
            known = set(field.enum_type.values_by_number)
            found += [f"{path}.{field.name} = {n}" for n in (value if field.is_repeated else [value]) if n not in known]
    return found


def messages_of(folder):
    """AgentMessage and ServerMessage as that version knew them."""
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString((folder / "protocol.bin").read_bytes()).file:
        pool.Add(each)
    names = (f"msprobe.v1.{name}" for name in ("AgentMessage", "ServerMessage"))
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]


def test_what_an_older_server_does_not_know_is_noticed(older):
    agent_message, _ = messages_of(older)
    ours = older_session.ingest().AgentMessage()
    marker = ours.batch.items.add().marker
    marker.step_end.step = 1
    assert not unknown_fields(agent_message.FromString(ours.SerializeToString()))
    later = b"\xf8\x07\x01"  # field 127, varint 1
    marker.step_end.MergeFromString(later)
    found = unknown_fields(agent_message.FromString(ours.SerializeToString()))
    assert found == ["batch.items.marker.step_end: field 127"]


class OlderServer:
    """Speaks the protocol of its version and refuses anything newer, but for words in Hello."""

    def __init__(self, folder, socket):
        self._agent_message, self._server_message = messages_of(folder)
        self._welcome = self._server_message.FromString(older_session.read(folder / "server.bin")[0])
        self._welcome.welcome.durable_through = 0
        self.unknown, self.steps_ended, self.ended, self.stored = [], [], threading.Event(), 0
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        handler = grpc.stream_stream_rpc_method_handler(self._stream)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("msprobe.v1.Ingest", {"Stream": handler}),)
        )
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def _stream(self, requests, _):
        for content in requests:
            message = self._agent_message.FromString(content)
            if message.HasField("hello"):
                assert message.hello.protocol == 1
                yield self._welcome.SerializeToString()
                continue
            self.unknown += unknown_fields(message)
            if message.WhichOneof("kind") is None:
                self.unknown.append("a message of a kind that is not known")
            answer = self._server_message()
            if message.HasField("batch"):
                yield from self._take(message.batch)
                answer.ack.received_through = answer.ack.durable_through = message.batch.batch_sequence
                yield answer.SerializeToString()
            elif message.HasField("payload_chunk") and message.payload_chunk.last:
                self.stored += 1
                answer.payload_verdict.stored.append(message.payload_chunk.hash)
                yield answer.SerializeToString()

    def _take(self, batch):
        answer = self._server_message()
        for item in batch.items:
            answer.payload_verdict.wanted.extend(payload.hash for payload in item.block.payload)
            if item.HasField("marker"):
                kind = item.marker.WhichOneof("kind")
                if kind is None:
                    self.unknown.append("a marker of a kind that is not known")
                elif kind == "step_end":
                    self.steps_ended.append(item.marker.step_end.step)
                elif kind == "session_end":
                    self.ended.set()
        if answer.payload_verdict.wanted:
            yield answer.SerializeToString()

    def stop(self):
        self._server.stop(2).wait()


@pytest.mark.timeout(180)
def test_an_older_server_understands_this_agent(older, tmp_path, short_directory):
    server = OlderServer(older, short_directory / "s")
    program = [sys.executable, older_session.HERE / "programs" / "older_model.py", tmp_path / "dump"]
    done = run(program, MSPROBE_SERVER=f"unix:{short_directory / 's'}", MSPROBE_RUN=older_session.RUN)
    server.stop()
    assert not server.unknown, f"the older server would refuse or lose: {server.unknown[:5]}"
    assert server.steps_ended == [0, 1, 2] and server.ended.is_set() and server.stored > 5, done.stdout
    assert "lost" not in done.stdout and "no server has" not in done.stdout


@pytest.fixture
def older_build():
    folder = os.environ.get("MSPROBE_OLDER")
    if not folder:
        pytest.skip("MSPROBE_OLDER names no older build: scripts/build_older.py makes one")
    return (REPOSITORY / folder).resolve()


@contextlib.contextmanager
def started(binary, socket, data, log):
    with Background([binary, f"--listen=unix:{socket}", f"--data_dir={data}"], log) as server:
        server.wait_for(lambda: accepts_connections(socket), 30, "it listens")
        yield server


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", ["older agent", "this agent"])
def test_a_server_is_replaced_under_a_program(first, older_build, tmp_path, short_directory, client, server_binary):
    """An agent of either version; the older server, drained at SIGTERM, and then this one on its data directory."""
    socket, data = short_directory / "s", tmp_path / "data"
    theirs = {"PYTHONPATH": str(older_build / "python")} if first == "older agent" else {}
    command = [sys.executable, older_session.HERE / "programs" / "older_steps.py", tmp_path / "dump", tmp_path / "go"]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(started(older_build / "server/msprobe-server", socket, data, tmp_path / "1.log"))
        settings = {"MSPROBE_SERVER": f"unix:{socket}", "MSPROBE_RUN": older_session.RUN, **theirs}
        program = stack.enter_context(Background(command, tmp_path / "program.log", **settings))
        program.wait_for(lambda: "half" in program.output, 60, "half of the steps are done")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0, server.output
        stack.enter_context(started(server_binary, socket, data, tmp_path / "2.log"))
        (tmp_path / "go").touch()
        program.finish(120)
        steps = run([client, "--server", f"unix:{socket}", "--format", "json", "steps", older_session.RUN]).stdout
    rows = answers.rows(steps)
    found = [(row["step"], row["state"], row["gap_fragments"]) for row in rows]
    assert found == [(step, "complete", 0) for step in range(20)]
    assert len({row["records"] for row in rows}) == 1, "no step lacks a record"
