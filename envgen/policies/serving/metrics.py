"""``GET /metrics``: counts in Prometheus' text format."""

from __future__ import annotations

from envgen.policies.serving.service import Service


def metrics(service: Service) -> str:
    """One line a figure, with its kind and meaning above it."""
    stats, counters = service.stats(), service.counters
    found = [
        ("requests_running", "gauge", "Replies being written.", stats.running),
        ("requests_waiting", "gauge", "Replies waiting for a place.", stats.waiting),
        ("free_pages", "gauge", "Cache pages that hold nothing.", stats.free_pages),
        ("known_pages", "gauge", "Cache pages kept to be found again.", stats.known_pages),
        (
            "tokens_per_second",
            "gauge",
            "Of streams and ended replies, in the last 10 s.",
            counters.tokens_per_s(),
        ),
        ("requests_total", "counter", "Requests taken.", counters.requests),
        ("requests_refused_total", "counter", "Told to come back later.", counters.refused),
        ("requests_cancelled_total", "counter", "Given up by the client.", counters.cancelled),
        ("prompt_tokens_total", "counter", "Tokens in prompts.", counters.prompt_tokens),
        ("completion_tokens_total", "counter", "Tokens written.", counters.completion_tokens),
        ("prefilled_tokens_total", "counter", "Prompt tokens computed.", stats.prefilled_tokens),
        ("decoded_tokens_total", "counter", "Tokens the engine decoded.", stats.decoded_tokens),
        ("decode_steps_total", "counter", "Steps it took for them.", stats.steps),
        ("preemptions_total", "counter", "Replies that lost their pages.", stats.preemptions),
    ]
    lines = [
        f"# HELP envgen_{name} {text}\n# TYPE envgen_{name} {kind}\nenvgen_{name} {value:g}\n"
        for name, kind, text, value in found
    ]
    return "".join(lines)
