"""A real local HTTP server that speaks the wire formats of OpenAI, vLLM and SGLang, and misbehaves on order.

``ModelServer(script)`` serves one entry of ``script`` per generation request (the last one for ever):

* ``dict`` / ``list`` of dicts: a JSON reply / a server-sent event stream (``[DONE]`` added);
* ``Raw(status, body, headers)``: those bytes;
* ``Hang()``: accepts, then says nothing; ``Drop(events)``: sends events, then cuts the connection;
* a callable: called with the request body, returns one of the above.

``models`` are listed at ``/v1/models``; None: there is no such page.

The tokenizer is one id per byte plus special tokens; the chat template is ChatML.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import numpy as np

SPECIAL = {"<|im_start|>": 256, "<|im_end|>": 257}
END = SPECIAL["<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Raw(NamedTuple):
    """An answer byte for byte."""

    status: int
    body: str = ""
    headers: dict[str, str] = {}


class Hang(NamedTuple):
    """Never answer."""


class Drop(NamedTuple):
    """Send some events, then cut the line."""

    events: Sequence[dict[str, Any]] = ()


def encode(text: str) -> list[int]:
    """Ids of ``text``: special tokens whole, everything else by byte."""
    ids: list[int] = []
    while text:
        for special, i in SPECIAL.items():
            if text.startswith(special):
                ids.append(i)
                text = text[len(special) :]
                break
        else:
            ids += text[0].encode()
            text = text[1:]
    return ids


def decode(ids: Sequence[int]) -> str:
    """The inverse of ``encode``."""
    names = {i: special.encode() for special, i in SPECIAL.items()}
    return b"".join(names.get(i, bytes([i % 256])) for i in ids).decode("utf-8", "replace")


def chatml(messages: Sequence[dict[str, Any]], generate: bool) -> str:
    """The template's text."""
    text = ""
    for message in messages:
        calls = "".join(
            f"<tool_call>{json.dumps(call['function'])}</tool_call>"
            for call in message.get("tool_calls", ())
        )
        text += f"<|im_start|>{message['role']}\n{message['content']}{calls}<|im_end|>\n"
    return text + ("<|im_start|>assistant\n" if generate else "")


def npy(array: Any) -> str:
    """vLLM's transport of arrays."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return base64.b64encode(buffer.getvalue()).decode()


def chat(content: str = "", **message: Any) -> dict[str, Any]:
    """A chat completion that was not streamed."""
    return {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, **message},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    }


def deltas(*parts: dict[str, Any], finish: str | None = "stop") -> list[dict[str, Any]]:
    """A streamed chat completion."""
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": part}]} for part in parts]
    if finish:
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        events.append({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
    return events


class ModelServer:
    """Serves ``script``; use as a context manager. ``requests`` holds (path, body, headers)."""

    def __init__(
        self, script: Sequence[Any], flavour: str = "vllm", models: Sequence[str] | None = None
    ) -> None:
        self.script = list(script)
        self.models = models
        self.flavour = flavour
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self._lock = threading.Lock()
        self._served = 0
        self.closing = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                """Stay quiet."""

            def do_GET(self) -> None:
                listed = {"data": [{"id": name} for name in owner.models or ()]}
                known = owner.models is not None and self.path == "/v1/models"
                owner._send(self, 200 if known else 404, json.dumps(listed).encode(), {})

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length))
                owner.answer(self, body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )

    @property
    def url(self) -> str:
        """Base URL, with /v1."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    @property
    def generations(self) -> list[dict[str, Any]]:
        """Bodies of the requests that asked for text."""
        return [body for path, body, _ in self.requests if "tokenize" not in path]

    def answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        with self._lock:
            self.requests.append((handler.path, body, dict(handler.headers)))
            entry: Any = self._tokenizer(handler.path, body)
            if entry is None:
                entry = self.script[min(self._served, len(self.script) - 1)]
                self._served += 1
        if isinstance(entry, Callable):  # type: ignore[arg-type]  # a plain callable check
            entry = entry(body)
        if isinstance(entry, Hang):
            self.closing.wait(30)
            return
        if isinstance(entry, Raw):
            self._send(handler, entry.status, entry.body.encode(), entry.headers)
        elif isinstance(entry, Drop):
            self._stream(handler, entry.events, done=False)
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
        elif isinstance(entry, list):
            self._stream(handler, entry, done=True)
        else:
            self._send(handler, 200, json.dumps(entry).encode(), {})

    def _tokenizer(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        if path == "/tokenize":
            text = body.get("prompt")
            if text is None:
                text = chatml(body["messages"], body["add_generation_prompt"])
            ids = encode(text)
            return {"tokens": ids, "count": len(ids), "max_model_len": 4096}
        if path == "/detokenize":
            field = "prompt" if self.flavour == "vllm" else "text"
            return {field: decode(body["tokens"])}
        return None

    def _send(
        self, handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def _stream(
        self, handler: BaseHTTPRequestHandler, events: Sequence[dict[str, Any]], *, done: bool
    ) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        for line in [*lines, *(["data: [DONE]\n\n"] if done else [])]:
            part = line.encode()
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            handler.wfile.flush()
        if done:
            handler.wfile.write(b"0\r\n\r\n")
