"""The way out of a bubblewrap sandbox with ``network="internet"``."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from envgen.core.errors import SandboxError
from envgen.sandboxes import gateway, runtime
from envgen.sandboxes.base import Sandbox, SandboxSpec, create

pytestmark = pytest.mark.bwrap
SIZE = 5_000_000
PAGE = b"0123456789" * (SIZE // 10)
CURL = ["curl", "-sS", "--noproxy", "", "--max-time", "20"]
STATUS = [*CURL, "-o", "/dev/null", "-w", "%{http_code} %{http_connect}"]
MANY = """
import socket, sys
held = []
for _ in range(300):
    held.append(socket.create_connection(("127.0.0.1", 3128), 25))
held[0].sendall(b"x" * 70_000)
held[1].sendall(b"GET http://[::1/ HTTP/1.1\\r\\n\\r\\n")
held[2].sendall(b"CONNECT nowhere HTTP/1.1\\r\\n\\r\\n")
held[3].sendall("CONNECT \xe9..example:80 HTTP/1.1\\r\\n\\r\\n".encode("latin-1"))
for one in (*held[1:4], held[-1]):
    print(one.recv(99).split()[1].decode())
"""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with a page and what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(SIZE))
        self.send_header("X-Asked", f"{self.requestline}|{self.headers['Host']}")
        self.end_headers()
        self.wfile.write(PAGE)

    def do_POST(self) -> None:
        size = len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(str(size))))
        self.end_headers()
        self.wfile.write(str(size).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """A server on every address of this machine."""
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


class Upstream(http.server.BaseHTTPRequestHandler):
    """A proxy that answers itself: a page's address, or what comes through a tunnel, and who asked."""

    def do_GET(self) -> None:
        body = f"{self.path} {self.headers['Proxy-Authorization']}".encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self) -> None:
        if self.path.startswith("closed."):
            self.send_error(HTTPStatus.FORBIDDEN, "by order")
            return
        self.send_response(HTTPStatus.OK)
        self.end_headers()
        asked = self.rfile.readline()
        body = f"{self.path} {self.headers['Proxy-Authorization']} ".encode() + asked.strip()
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine has to ask a proxy for everything."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://me:p%40ss@127.0.0.1:{server.server_address[1]}")
    monkeypatch.delenv("no_proxy", raising=False)
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def sandbox(*reach: str) -> Sandbox:
    return create(SandboxSpec(network="internet", reach=reach), "bubblewrap")


def own_address() -> str:
    """Of this machine, on its way to the internet; 127.0.0.1 if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("1.1.1.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def test_neither_this_machine_nor_private_networks_are_reached(port: int) -> None:
    hosts = ["127.0.0.1", "127.1.2.3", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]"]
    hosts += [
        "169.254.169.254",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "[fd00::1]",
        own_address(),
    ]
    with sandbox() as place:
        for host in hosts:
            page = place.exec([*STATUS, f"http://{host}:{port}/"])
            assert page.text == "403 000", (host, page.text)
            tunnel = place.exec([*STATUS, "--proxytunnel", f"http://{host}:{port}/"])
            assert tunnel.text == "000 403", (host, tunnel.text)
        text = place.exec([*CURL, f"http://localhost:{port}/"]).text
        assert f"ENVGEN_REACH=localhost:{port}" in text


def test_what_does_not_ask_the_proxy_has_no_network(port: int) -> None:
    with sandbox() as place:
        direct = [*CURL, "--noproxy", "*", "--connect-timeout", "5"]
        for host in ("127.0.0.1", own_address(), "1.1.1.1", "[2606:4700::1111]"):
            assert place.exec([*direct, f"http://{host}:{port}/"]).exit_code == 7, host
        assert place.exec([*direct, "https://pypi.org/"]).exit_code == 6


def test_hosts_that_are_named_are_reached(port: int) -> None:
    url = f"http://localhost:{port}/page?a=b"
    with sandbox(f"localhost:{port}") as place:
        page = place.exec([*CURL, "-i", url], timeout_s=60)
        assert f"X-Asked: GET /page?a=b HTTP/1.1|localhost:{port}".encode() in page.stdout
        for more in ([], ["--proxytunnel"]):
            got = place.exec(["sh", "-c", f"{' '.join(CURL[:2] + more)} '{url}' | cksum"])
            here = place.exec(["cksum"], stdin=PAGE)
            assert got.text == here.text
            sent = [*CURL, *more, "-H", "Expect:", "--data-binary", "@-", url]
            assert place.exec(sent, stdin=PAGE).text == str(SIZE)
        assert place.exec([*STATUS, f"http://127.0.0.1:{port}/"]).text == "403 000"
        assert place.exec([*STATUS, f"http://localhost:{port + 1}/"]).text == "403 000"
    with sandbox("localhost") as place:
        assert place.exec([*STATUS, url]).text == "200 000"


def test_the_variables_are_the_programs_own() -> None:
    with sandbox("localhost:1") as place:
        shown = ["sh", "-c", "echo $http_proxy $HTTPS_PROXY $no_proxy; echo $JAVA_TOOL_OPTIONS"]
        first, second = place.exec(shown, env={"JAVA_TOOL_OPTIONS": "-Da=b"}).text.splitlines()
        assert first == "http://127.0.0.1:3128 http://127.0.0.1:3128 127.0.0.1,::1"
        assert second.startswith("-Da=b -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 ")


def test_a_client_that_hoards_connections_or_talks_nonsense_harms_nobody(port: int) -> None:
    words = [runtime.python(), *runtime.python_flags(), "-c", MANY]
    with sandbox(f"localhost:{port}") as place:
        result = place.exec(words, timeout_s=60)
        assert result.text.split() == ["400", "400", "502", "503"], result
        deadline = time.monotonic() + 10
        while place.exec([*STATUS, f"http://localhost:{port}/"]).text != "200 000":
            assert time.monotonic() < deadline


def test_nothing_is_left_of_a_sandbox_that_is_closed(port: int) -> None:
    place = sandbox(f"localhost:{port}")
    held = place.spawn([*CURL, "--limit-rate", "1k", f"http://localhost:{port}/"])
    assert held.stdout.read(10) == b"0123456789"
    assert gateways()
    began = time.monotonic()
    place.close()
    place.close()
    assert time.monotonic() - began < 5
    assert not gateways()
    held.kill()


def gateways() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name == "envgen-gateway"]


def test_what_is_to_be_reached_must_be_a_host() -> None:
    for text in ("http://pypi.corp/simple", "a:b", "", "me@pypi.corp"):
        with pytest.raises(SandboxError, match=r"neither a host nor|Port could not"):
            sandbox(text)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "100.63.255.255", "172.32.0.1", "223.255.255.255", "2606:4700::1111"],
)
def test_addresses_of_the_internet(address: str) -> None:
    assert gateway.is_internet(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.100.100.200", "127.0.0.2", "168.63.129.16", "169.254.169.254",
        "172.31.255.255", "192.168.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1%lo",
        "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", own_address(),
    ],
)  # fmt: skip
def test_addresses_that_are_not(address: str) -> None:
    assert not gateway.is_internet(address)


@pytest.mark.usefixtures("upstream")
def test_the_machines_own_proxy_is_asked_in_turn(port: int) -> None:
    with sandbox(f"localhost:{port}") as place:
        page = place.exec([*CURL, "http://index.invalid/simple/?a=b"])
        assert page.text == "http://index.invalid:80/simple/?a=b Basic bWU6cEBzcw=="
        tunnel = place.exec([*CURL, "--proxytunnel", "http://index.invalid:443/x"])
        assert tunnel.text == "index.invalid:443 Basic bWU6cEBzcw== GET /x HTTP/1.1"
        closed = place.exec([*STATUS, "--proxytunnel", "http://closed.invalid/"])
        assert closed.text == "000 502"
        assert place.exec([*STATUS, f"http://127.0.0.1:{port}/"]).text == "403 000"
        assert place.exec([*STATUS, f"http://localhost:{port}/"]).text == "200 000"
        shown = place.exec(["env"]).text
    assert "p%40ss" not in shown
    assert "p@ss" not in shown


def test_a_proxy_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    with sandbox() as place:
        assert "is not an http:// one" in place.exec([*CURL, "http://index.invalid/"]).text
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with sandbox() as place:
        assert "this machine's proxy" in place.exec([*CURL, "http://index.invalid/"]).text
