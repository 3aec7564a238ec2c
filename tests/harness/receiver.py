"""A program that receives posts, as a webhook's does: it answers what it is told to, and keeps what came."""

import contextlib
import dataclasses
import http.server
import ssl
import threading
import time


@dataclasses.dataclass(frozen=True)
class Post:
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    at: float  # Unix time
    status: int  # of the answer


class Receiver:
    """answers: statuses of the next answers; then 200. A string redirects there."""

    def __init__(self, port=0, certificate=None, answers=()):
        self.posts, self.answers = [], list(answers)
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = receiver.answers.pop(0) if receiver.answers else 200
                status = 302 if isinstance(answer, str) else answer
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.posts.append(Post(self.path, headers, body, time.time(), status))
                self.send_response(status)
                if isinstance(answer, str):
                    self.send_header("Location", answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                receiver.posts.append(Post(self.path, {}, b"", time.time(), 200))
                self.send_error(405)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._server.server_close()

    @property
    def taken(self):
        return [post for post in self.posts if post.status == 200]
