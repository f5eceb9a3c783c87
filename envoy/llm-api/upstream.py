"""A stand-in for an API of language models: as many tokens as it is asked for, as one JSON document or as a stream.

`python3 upstream.py PORT` serves on 127.0.0.1. It answers `POST /v1/chat/completions` in the form that most such APIs have:

- `max_tokens` is how many tokens the answer has (16); a prompt has one for each word.
- `stream: true`: server-sent events, one for each four tokens. With `stream_options: {include_usage: true}` the last event
  has the usage; otherwise none does.
- The header `x-pause-ms` is how long it waits before each event, or before the document.
"""

import http.server
import json
import sys
import time

# More than any request here has.
_BODY_BYTES_MAX = 1 << 20
_TOKENS_MAX = 1_000_000
_TOKENS_PER_EVENT = 4
# A long answer has longer events instead of more of them.
_EVENTS_MAX = 100


def _usage(asked):
    texts = [str(message.get("content", "")) for message in asked.get("messages", [])]
    prompt = sum(len(text.split()) for text in texts)
    completion = min(int(asked.get("max_tokens", 16)), _TOKENS_MAX)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _events(asked, usage):
    """The documents of a stream."""
    per_event = max(_TOKENS_PER_EVENT, -(-usage["completion_tokens"] // _EVENTS_MAX))
    for begin in range(0, usage["completion_tokens"], per_event):
        count = min(per_event, usage["completion_tokens"] - begin)
        yield {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "la " * count}}], "usage": None}
    if asked.get("stream_options", {}).get("include_usage"):
        yield {"object": "chat.completion.chunk", "choices": [], "usage": usage}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    # The base class looks for this name.
    def do_POST(self):
        length = int(self.headers.get("content-length", "0"))
        try:
            asked = json.loads(self.rfile.read(min(length, _BODY_BYTES_MAX)) or "{}")
        except ValueError:
            self._answer(400, {"error": "expected JSON"})
            return
        usage = _usage(asked)
        if asked.get("stream"):
            self._stream(asked, usage)
        else:
            self._pause()
            content = "la " * usage["completion_tokens"]
            message = {"role": "assistant", "content": content}
            self._answer(200, {"object": "chat.completion", "choices": [{"message": message}], "usage": usage})

    def _answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, asked, usage):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for document in _events(asked, usage):
                self._pause()
                self._chunk(f"data: {json.dumps(document)}\n\n")
            self._chunk("data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            # Its client has left.
            self.close_connection = True

    def _chunk(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _pause(self):
        time.sleep(int(self.headers.get("x-pause-ms", "0")) / 1000)

    def log_message(self, format, *args):  # the base class's argument is named `format`
        print(format % args, flush=True)


class _Server(http.server.ThreadingHTTPServer):
    # Envoy opens connections in bursts.
    request_queue_size = 128
    daemon_threads = True


def main():
    """Serve until a signal ends the process."""
    with _Server(("127.0.0.1", int(sys.argv[1])), _Handler) as server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
