"""Many agents at once: how close they come to what a slow model server allows.

    python -P benchmarks/agents.py [--agents 64] [--turns 6] [--rounds 3]

A server in a process of its own takes one second for each reply. Every reply calls ``search`` over the corpus
in the package with another query; the last one hands in. Ideal: turns x rounds x 1 s. Targets: 90 % of that,
1 GiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection

from envgen.environments.search import CorpusNote
from envgen.pipelines.search.roles import CorpusLibrary, Role, answer
from envgen.policies.registry import PolicyConfig, parse_policy
from envgen.store.corpus_lines import package_corpus

LATENCY_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    corpus = package_corpus()
    corpus.remember()
    library = CorpusLibrary(CorpusNote(corpus=corpus.hash).open())
    here, there = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=serve, args=(there, arguments.turns), daemon=True)
    server.start()
    options = {"stream": False}
    policy = parse_policy(PolicyConfig(spec=f"openai:m@{here.recv()}", options=options))
    with ThreadPoolExecutor(arguments.agents) as pool:
        started = time.monotonic()
        runs = list(
            pool.map(
                lambda number: answer(policy, library, "What is it?", Role(), name=str(number)),
                range(arguments.agents * arguments.rounds),
            )
        )
        wall = time.monotonic() - started
    server.kill()
    assert {run.ended for run in runs} == {"submitted"}
    ideal = arguments.turns * arguments.rounds * LATENCY_S
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(runs)} conversations of {arguments.turns} replies, {arguments.agents} at once")
    print(
        f"{wall:.1f} s, ideal {ideal:.1f} s: {ideal / wall:.0%} (target 90 %); {memory:.2f} GiB (target 1)"
    )


def serve(pipe: Connection, turns: int) -> None:
    """Answer after a second, with a search or, on the last turn, with a submission."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            turn = sum(one["role"] == "assistant" for one in body["messages"]) + 1
            name, given = (
                "search",
                {"query": f"painter born {1800 + turn} {body.get('seed', 0) % 97}"},
            )
            if turn == turns:
                name, given = "hand_in", {"answer": "it"}
            function = {"name": name, "arguments": json.dumps(given)}
            message = {"content": "", "tool_calls": [{"id": f"c{turn}", "function": function}]}
            usage = {"prompt_tokens": 100, "completion_tokens": 10}
            choice = {"message": message, "finish_reason": "tool_calls"}
            content = json.dumps({"choices": [choice], "usage": usage}).encode()
            time.sleep(LATENCY_S)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 1024

    server = Server(("127.0.0.1", 0), Handler)
    pipe.send(f"http://127.0.0.1:{server.server_address[1]}/v1")
    server.serve_forever()


if __name__ == "__main__":
    main()
