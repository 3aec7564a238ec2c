"""A session as an earlier version sent and stored it: kept below tests/operate/older/, one folder a version.

agent.bin        what the agent sent on its stream, a length of four bytes (little-endian) before each message
server.bin       what the server answered, the same
protocol.bin     the FileDescriptorSet of that version's ingest.proto
half.tar.gz      the data directory of its server after half of the session, which was killed then
dump/            what its server exported of the whole session, without the tensors

older_session.py record FOLDER    writes such a folder with the agent and the server that PYTHONPATH and
                                  MSPROBE_SERVER_BINARY name: once for each version that leaves the house
"""

import contextlib
import os
import pathlib
import queue
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
from concurrent import futures

import grpc

HERE = pathlib.Path(__file__).resolve().parent
METHOD = "/msprobe.v1.Ingest/Stream"
RUN = "older"
PATIENCE_S = 60


def ingest():
    """Today's messages, which can read earlier ones: numbers are never reused."""
    from msprobe_client.proto import ingest_pb2

    return ingest_pb2


def read(path):
    content, messages = pathlib.Path(path).read_bytes(), []
    while content:
        (size,) = struct.unpack("<I", content[:4])
        messages.append(content[4 : 4 + size])
        content = content[4 + size :]
    return messages


def write(path, messages):
    pathlib.Path(path).write_bytes(b"".join(struct.pack("<I", len(each)) + each for each in messages))


class Player:
    """One stream to a server, of messages that are bytes."""

    def __init__(self, address):
        self._channel = grpc.insecure_channel(address)
        self._to_send = queue.Queue()
        self._call = self._channel.stream_stream(METHOD)(iter(self._to_send.get, None))
        self.answers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._call.cancel()
        self._channel.close()

    def send(self, message):
        self._to_send.put(message)

    def until(self, holds):
        """Reads answers until one holds, and gives it."""
        timer = threading.Timer(PATIENCE_S, self._call.cancel)
        timer.start()
        try:
            for content in self._call:
                answer = ingest().ServerMessage.FromString(content)
                self.answers.append(answer)
                if holds(answer):
                    return answer
        finally:
            timer.cancel()
        raise AssertionError(f"the stream ended with {self._call.code()}: {self._call.details()}")

    def close(self):
        """Half-close; the code with which the server ends the stream."""
        self._to_send.put(None)
        for content in self._call:
            self.answers.append(ingest().ServerMessage.FromString(content))
        return self._call.code()


def play(address, messages, last_batch=None):
    """Opens the session and sends the batches that the server lacks, up to last_batch; gives (Welcome, code), without a
    code for a part of the session. A server with a part of the session says so, as to an agent that comes again.
    """
    sent = [ingest().AgentMessage.FromString(each) for each in messages]
    assert sent[0].HasField("hello")
    batches = [each.batch.batch_sequence for each in sent if each.HasField("batch")]
    last = batches[-1] if last_batch is None else last_batch
    with Player(address) as player:
        player.send(messages[0])
        welcome = player.until(lambda answer: answer.HasField("welcome")).welcome
        missing, at = set(welcome.missing_payloads), 0
        for content, message in zip(messages, sent, strict=True):
            if message.HasField("batch"):
                at = message.batch.batch_sequence
            owed = message.HasField("payload_chunk") and (
                at > welcome.durable_through or message.payload_chunk.hash in missing
            )
            if at <= last and (owed or (message.HasField("batch") and at > welcome.durable_through)):
                player.send(content)
        if welcome.durable_through < last:
            player.until(lambda answer: answer.ack.durable_through >= last)
        return welcome, (player.close() if last_batch is None else None)


class Recorder:
    """A server that passes every stream on to another one, and records it."""

    def __init__(self, socket, target):
        self.sent, self.answered = [], []
        self._target = grpc.insecure_channel(target)
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("msprobe.v1.Ingest", {"Stream": self._handler()}),)
        )
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def _handler(self):
        def stream(requests, _):
            def keep():
                for request in requests:
                    self.sent.append(request)
                    yield request

            for answer in self._target.stream_stream(METHOD)(keep()):
                self.answered.append(answer)
                yield answer

        return grpc.stream_stream_rpc_method_handler(stream)

    def stop(self):
        self._server.stop(2).wait()
        self._target.close()


@contextlib.contextmanager
def serving(binary, socket, data):
    process = subprocess.Popen([str(binary), f"--listen=unix:{socket}", f"--data_dir={data}", "--log_level=warning"])
    try:
        channel = grpc.insecure_channel(f"unix:{socket}")
        grpc.channel_ready_future(channel).result(PATIENCE_S)
        channel.close()
        yield process
    finally:
        process.kill()
        process.wait()


def record(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    binary = os.environ["MSPROBE_SERVER_BINARY"]
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="older-", dir="/tmp"))
    with serving(binary, scratch / "s", scratch / "whole"):
        recorder = Recorder(scratch / "r", f"unix:{scratch / 's'}")
        program = [sys.executable, str(HERE / "programs" / "older_model.py"), str(scratch / "dump")]
        where = {"MSPROBE_SERVER": f"unix:{scratch / 'r'}", "MSPROBE_RUN": RUN}
        subprocess.run(program, check=True, env={**os.environ, **where})
        recorder.stop()
        client = pathlib.Path(sys.executable).with_name("msprobe-client")
        asked = ["--server", f"unix:{scratch / 's'}", "export", RUN, "--output", str(folder / "dump"), "--no-tensors"]
        subprocess.run([str(client), *asked], check=True)
    write(folder / "agent.bin", recorder.sent)
    write(folder / "server.bin", recorder.answered)
    batches = [each for each in recorder.sent if ingest().AgentMessage.FromString(each).HasField("batch")]
    with serving(binary, scratch / "s", scratch / "half"):
        play(f"unix:{scratch / 's'}", recorder.sent, last_batch=len(batches) // 2)
    with tarfile.open(folder / "half.tar.gz", "w:gz") as archive:
        for path in sorted((scratch / "half").rglob("*")):
            if path.is_file() and not path.name.startswith("LOG"):
                archive.add(path, path.relative_to(scratch / "half"))
    describe = ["--include_imports", f"--descriptor_set_out={folder / 'protocol.bin'}", "msprobe/v1/ingest.proto"]
    proto = os.environ.get("MSPROBE_PROTO", str(HERE.parents[1] / "proto"))
    subprocess.run(["protoc", f"-I{proto}", *describe], check=True)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    assert sys.argv[1] == "record", __doc__
    record(sys.argv[2])
