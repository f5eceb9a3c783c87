"""A small HTTP upstream: answers every request with 200 and lists what arrived.

`python3 upstream.py PORT` serves on 127.0.0.1. Its answers carry the header NAME_HEADER, so that a
client can distinguish them from the proxy's own responses.
"""

import http.server
import sys

NAME_HEADER = "x-answered-by"
NAME = "weir-lab-upstream"
# More than a browser or curl sends to a page like this.
_BODY_BYTES_MAX = 1 << 20


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body leave in one packet: two would wait for each other (Nagle, delayed ACK).
    wbufsize = -1
    disable_nagle_algorithm = True

    def _answer(self):
        if not self._discard_body():
            self.close_connection = True
        body = f"The upstream behind Weir got {self.command} {self.path}\n".encode()
        self.send_response(200)
        self.send_header(NAME_HEADER, NAME)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _discard_body(self):
        """Read the request's body; False where the connection cannot be used again."""
        length = self.headers.get("content-length", "0")
        if "transfer-encoding" in self.headers or not length.isdigit():
            return False
        if int(length) > _BODY_BYTES_MAX:
            return False
        self.rfile.read(int(length))
        return True

    # The names the base class looks for, one for each method.
    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer

    def log_message(self, format, *args):  # the base class's argument is named `format`
        print(format % args, flush=True)


class _Server(http.server.ThreadingHTTPServer):
    # Envoy opens connections in bursts.
    request_queue_size = 128


def main():
    """Serve until a signal ends the process."""
    with _Server(("127.0.0.1", int(sys.argv[1])), _Handler) as server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
