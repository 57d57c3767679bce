"""The engine as a service: many threads, cancelling, closing, failing."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from dsa_samples import small_model
from engine_samples import (
    assert_alike,
    assert_exact,
    assert_nothing_leaks,
    mixed_requests,
    request,
    small_engine,
)

from envgen.core.errors import ConfigError, PolicyError
from envgen.model.engine import Engine
from envgen.model.requests import EngineClosedError, RequestCancelledError

WAIT_S = 60.0


def settle(engine: Engine) -> None:
    """Wait until nothing is left to do."""
    deadline = time.monotonic() + WAIT_S
    while (stats := engine.stats()).running or stats.waiting:
        assert time.monotonic() < deadline, stats
        time.sleep(0.002)


def test_sixteen_threads_at_once_get_what_they_would_get_alone() -> None:
    model, requests = small_model(), mixed_requests(64)
    wanted = small_engine(model).generate(requests)
    barrier = threading.Barrier(16)
    with small_engine(model) as engine, ThreadPoolExecutor(16) as pool:

        def ask(part: int) -> list[object]:
            barrier.wait(WAIT_S)
            tickets = [engine.submit(one) for one in requests[part * 4 : part * 4 + 4]]
            return [ticket.result(WAIT_S) for ticket in tickets]

        found = [reply for part in pool.map(ask, range(16)) for reply in part]
        for reply, alone in zip(found, wanted, strict=True):
            assert_alike(reply, alone)  # type: ignore[arg-type]
        settle(engine)
        assert_nothing_leaks(engine)


def test_tokens_come_as_they_are_drawn() -> None:
    seen: list[tuple[int, float]] = []
    done = threading.Event()
    with small_engine() as engine:
        ticket = engine.submit(request(10), on_token=lambda *drawn: seen.append(drawn))
        ticket.add_done_callback(done.set)
        streamed = list(ticket.tokens(WAIT_S))
        reply = ticket.result(0)
        assert ticket.done
        assert done.is_set()
    assert streamed == [token for token, _ in seen] == reply.ids.tolist()
    assert [logprob for _, logprob in seen] == reply.logprobs.tolist()


def test_generate_may_be_called_while_the_engine_serves() -> None:
    model, requests = small_model(), mixed_requests(6)
    with small_engine(model) as engine:
        for asked, reply in zip(requests, engine.generate(requests), strict=True):
            assert_exact(model, asked, reply)


def test_a_waiter_may_give_up_and_come_back() -> None:
    with small_engine() as engine:
        ticket = engine.submit(request(10, max_new=200))
        with pytest.raises(TimeoutError):
            ticket.result(0)
        with pytest.raises(TimeoutError):
            list(ticket.tokens(0))
        assert len(ticket.result(WAIT_S).ids) == 200


def test_cancelling_midway_frees_pages_and_place() -> None:
    with small_engine(max_batch=1, cache_tokens=4096) as engine:
        running = engine.submit(request(40, max_new=3000))
        stream = running.tokens(WAIT_S)
        next(stream)
        queued = engine.submit(request(5, seed=1))
        engine.cancel(running)
        assert len(queued.result(WAIT_S).ids) == 12
        with pytest.raises(RequestCancelledError):
            running.result(WAIT_S)
        with pytest.raises(RequestCancelledError):
            list(stream)
        settle(engine)
        assert_nothing_leaks(engine)


def test_cancelling_twice_or_late_is_harmless() -> None:
    with small_engine() as engine:
        ticket = engine.submit(request(5))
        reply = ticket.result(WAIT_S)
        ticket.cancel()
        ticket.cancel()
        assert ticket.result(0) is reply
        assert len(engine.submit(request(5)).result(WAIT_S).ids) == 12


def test_a_broken_callback_ends_its_own_request_only() -> None:
    def explode(token: int, logprob: float) -> None:
        raise ZeroDivisionError(token)

    with small_engine() as engine:
        bad = engine.submit(request(5, seed=1), on_token=explode)
        good = engine.submit(request(5, seed=2))
        assert len(good.result(WAIT_S).ids) == 12
        with pytest.raises(ZeroDivisionError):
            bad.result(WAIT_S)
        settle(engine)
        assert_nothing_leaks(engine)


def test_an_error_in_the_model_reaches_everyone_and_the_engine_goes_on() -> None:
    model = small_model()
    head = model.lm_head.weight.detach().clone()
    with small_engine(model) as engine:
        with torch.no_grad():
            model.lm_head.weight.fill_(float("nan"))
        engine.refresh()
        tickets = [engine.submit(request(9, seed=i, max_new=50)) for i in range(12)]
        for ticket in tickets:
            with pytest.raises(PolicyError, match="without a distribution"):
                ticket.result(WAIT_S)
        settle(engine)
        with engine.paused(WAIT_S):
            with torch.no_grad():
                model.lm_head.weight.copy_(head)
            engine.refresh()
        asked = request(9)
        assert_exact(model, asked, engine.submit(asked).result(WAIT_S))
        settle(engine)
        assert_nothing_leaks(engine)


def test_an_error_in_generate_is_raised_and_leaves_nothing_behind() -> None:
    model = small_model()
    engine = small_engine(model)
    with torch.no_grad():
        model.model.embed_tokens.weight[7] = float("nan")
    asked = request(20)
    asked = type(asked)([*asked.prompt_ids, 7, 1], asked.params)
    with pytest.raises(PolicyError, match="without a distribution"):
        engine.generate([request(5, seed=3), asked])
    assert engine.stats().running == engine.stats().waiting == 0
    with torch.no_grad():
        model.model.embed_tokens.weight[7] = 0.0
    engine.refresh()
    assert_exact(model, asked, engine.generate([asked])[0])
    assert_nothing_leaks(engine)


def test_closing_tells_whoever_waits() -> None:
    engine = small_engine(max_batch=1).start()
    tickets = [engine.submit(request(5, seed=i, max_new=1500)) for i in range(3)]
    next(tickets[0].tokens(WAIT_S))
    engine.close()
    for ticket in tickets:
        with pytest.raises(EngineClosedError):
            ticket.result(WAIT_S)
    engine.close()
    with pytest.raises(EngineClosedError, match="does not run"):
        engine.submit(request(5))
    assert len(engine.generate([request(5)])[0].ids) == 12
    with engine:
        assert len(engine.submit(request(5)).result(WAIT_S).ids) == 12


def test_refreshing_needs_a_pause_while_replies_are_under_way() -> None:
    model = small_model()
    with small_engine(model, max_batch=2) as engine:
        first = [engine.submit(request(5, seed=i, max_new=150)) for i in range(2)]
        later = [engine.submit(request(5, seed=i, max_new=5)) for i in range(2, 5)]
        next(first[0].tokens(WAIT_S))
        with pytest.raises(ConfigError, match="under way"):
            engine.refresh("2")
        with pytest.raises(TimeoutError), engine.paused(0):
            pass
        with engine.paused(WAIT_S):
            engine.refresh("2")  # or it is refused, as above
        assert {ticket.result(WAIT_S).policy_version for ticket in first} == {""}
        assert {ticket.result(WAIT_S).policy_version for ticket in later} == {"2"}


@pytest.mark.slow
def test_five_hundred_requests_that_come_and_go_leave_nothing_behind() -> None:
    """Random arrivals, random cancels, a cache that is too small for all of them."""
    draws = random.Random(5)
    requests = mixed_requests(500, seed=6)
    kept = cancelled = 0
    with small_engine(cache_tokens=256, max_context=90) as engine:
        tickets = []
        for asked in requests:
            tickets.append(engine.submit(asked))
            if draws.random() < 0.3:
                draws.choice(tickets[-20:]).cancel()
            if draws.random() < 0.2:
                time.sleep(draws.random() * 0.01)
        for ticket, asked in zip(tickets, requests, strict=True):
            try:
                reply = ticket.result(WAIT_S)
            except RequestCancelledError:
                cancelled += 1
                continue
            kept += 1
            assert 1 <= len(reply.ids) <= asked.params.max_new_tokens
        assert kept > 200
        assert cancelled > 50
        settle(engine)
        assert engine.stats().preemptions > 0
        assert_nothing_leaks(engine)
