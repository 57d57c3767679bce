"""What a port costs: the engine asked in process, and by HTTP through ``envgen serve policy``.

    python -P benchmarks/serving.py [--preset tiny] [--clients 32] [--new 128] [--repetitions 5]

The same prompts, seeds and lengths each way: *engine* is ``Engine.generate``; *whole* and *streamed* are chat
completions from as many threads of this process as there are clients, answered by a server process. Tokens
per second of wall time and per second of the answering process's processor time (Linux), mean batch, and for
streams the wait for the first token when all ask at once. Medians; the ways take turns; one PyTorch thread.
Random weights.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from envgen.core.types import Message
from envgen.model.config import preset
from envgen.model.modeling import DSAForCausalLM
from envgen.model.requests import Request
from envgen.model.sampling import SamplingParams
from envgen.model.tokenizer import train_tokenizer
from envgen.policies.encoding import EncodingConfig, save_encoding
from envgen.policies.encoding.files import tokenizer_config
from envgen.policies.local_model import LocalModel, LocalModelConfig, open_model

TEXTS = ("Which hotel in Hangzhou is the cheapest of all that have a free room on Monday?",) * 3


class Timed(NamedTuple):
    """One repetition of one way."""

    tokens: float
    wall_s: float
    cpu_s: float
    mean_batch: float
    first_s: float
    """Median wait for the first token; 0 where nobody saw it come."""


class Server:
    """A server process, and what it says of itself."""

    def __init__(self, card: dict[str, Any]) -> None:
        self.port, self.pid = card["port"], card["pid"]

    def cpu_s(self) -> float:
        """Processor time so far; 0 where there is no /proc."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def steps(self) -> tuple[float, float]:
        """Tokens decoded and steps taken so far."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        figures = dict(line.split() for line in lines if line[0] != "#")
        tokens, steps = "envgen_decoded_tokens_total", "envgen_decode_steps_total"
        return float(figures[tokens]), float(figures[steps])

    def ask(self, number: int, new: int, stream: bool) -> float:
        """One chat completion; seconds until the first token of a stream."""
        started, first = time.perf_counter(), 0.0
        with closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            body: dict[str, Any] = {
                "model": "m",
                "messages": [{"role": "user", "content": text(number)}],
            }
            body |= {"max_tokens": new, "seed": number, "stream": stream, "return_token_ids": True}
            connection.request(
                "POST",
                "/v1/chat/completions",
                json.dumps(body),
                {"Content-Type": "application/json"},
            )
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
            for line in reply:
                if stream and not first and b'"token_ids"' in line:
                    first = time.perf_counter() - started
        return first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    clients, new = arguments.clients, arguments.new
    torch.set_num_threads(1)
    print(
        f"{arguments.preset}, load {os.getloadavg()[0]:.1f}: {clients} replies of up to {new} tokens at once"
    )
    found: dict[str, list[Timed]] = {"engine": [], "whole": [], "streamed": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "m"
        write_model(folder, arguments.preset)
        with (
            closing(open_model(LocalModelConfig(model=str(folder), max_batch=clients))) as local,
            served(folder, clients) as server,
        ):
            in_process(local, clients, 4)
            by_http(server, clients, 4, stream=True)
            for _ in range(arguments.repetitions):
                found["engine"].append(in_process(local, clients, new))
                found["whole"].append(by_http(server, clients, new, stream=False))
                found["streamed"].append(by_http(server, clients, new, stream=True))
    show(found)


def show(found: dict[str, list[Timed]]) -> None:
    """One line a way, beside the engine alone."""
    print("      way  tokens/s  of engine  tokens per cpu s  of engine  mean batch  first token ms")
    rates, per_cpu = dict[str, float](), dict[str, float]()
    for way, runs in found.items():
        rates[way] = statistics.median(one.tokens / one.wall_s for one in runs)
        per_cpu[way] = statistics.median(one.tokens / one.cpu_s if one.cpu_s else 0 for one in runs)
    for way, runs in found.items():
        batch = statistics.median(one.mean_batch for one in runs)
        first = statistics.median(one.first_s for one in runs)
        print(
            f"{way:>9} {rates[way]:9,.0f} {rates[way] / rates['engine']:10.0%} {per_cpu[way]:17,.0f} "
            f"{per_cpu[way] / per_cpu['engine']:10.0%} {batch:11.1f} "
            f"{f'{first * 1e3:.0f}' if first else '-':>15}"
        )


def write_model(folder: Path, name: str) -> None:
    """A folder with random weights."""
    config = EncodingConfig(kind="compact")
    tokenizer = train_tokenizer(TEXTS, tokenizer_config(config, vocab_size=400))
    model = DSAForCausalLM(preset(name, vocab_size=tokenizer.vocab_size))
    model.reset_parameters(0)
    model.save_pretrained(folder)
    tokenizer.save(folder)
    save_encoding(config, folder)


@contextmanager
def served(folder: Path, clients: int) -> Iterator[Server]:
    """A server of the folder, as a process."""
    card = folder.parent / "server.json"
    words = ["serve", "policy", folder, "--port", 0, "--threads", 1, "--max-batch", clients]
    command = [sys.executable, "-P", "-m", "envgen", *map(str, words), "--json", str(card)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the server did not start"
            yield Server(json.loads(card.read_text()))
        finally:
            process.terminate()


def text(number: int) -> str:
    return f"Which hotel in Hangzhou is number {number}?"


def in_process(local: LocalModel, clients: int, new: int) -> Timed:
    """All replies by the engine of this process."""
    messages = [[Message(role="user", content=text(number))] for number in range(clients)]
    stops = local.encoding.stop_ids
    requests = [
        Request(
            local.encoding.prompt(one, []),
            SamplingParams(max_new_tokens=new, seed=number, stop_ids=stops, capture_routing=False),
        )
        for number, one in enumerate(messages)
    ]
    before, wall, cpu = local.engine.stats(), time.perf_counter(), time.process_time()
    local.engine.generate(requests)
    after, took = local.engine.stats(), time.perf_counter() - wall
    tokens = after.decoded_tokens - before.decoded_tokens
    batch = tokens / (after.steps - before.steps)
    return Timed(tokens, took, time.process_time() - cpu, batch, 0.0)


def by_http(server: Server, clients: int, new: int, *, stream: bool) -> Timed:
    """All replies by the server, asked for at once."""
    before, wall, cpu = server.steps(), time.perf_counter(), server.cpu_s()
    with ThreadPoolExecutor(clients) as pool:
        first = list(pool.map(lambda number: server.ask(number, new, stream), range(clients)))
    took, used, after = time.perf_counter() - wall, server.cpu_s() - cpu, server.steps()
    tokens = after[0] - before[0]
    return Timed(tokens, took, used, tokens / (after[1] - before[1]), statistics.median(first))


if __name__ == "__main__":
    main()
