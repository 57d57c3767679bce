"""Models of a toy kind over the films corpus, behind a real server: they read what they are sent and reply.

``brains(corpus)`` gives the honest writer, answerer and verifier; a test exchanges one of them. Each is a
function of a request's body that returns a tool call, or words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from envgen.store.corpus import Corpus

Call = tuple[str, dict[str, Any]]
Brain = Callable[[dict[str, Any]], "Call | list[Call] | str"]
GENRE = "its genre is {}"
BORN = "its director was born in the year {}"


def completion(said: Call | list[Call] | str, number: int) -> dict[str, Any]:
    """A reply in OpenAI's form."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    if isinstance(said, str):
        message["content"] = said
    else:
        message["tool_calls"] = [
            {
                "id": f"c{number}_{place}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for place, (name, arguments) in enumerate(said if isinstance(said, list) else [said])
        ]
    usage = {"prompt_tokens": 20_000, "completion_tokens": 100}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


def script(brains: dict[str, Brain]) -> Callable[[dict[str, Any]], Any]:
    """What a ``ModelServer`` answers: the brain of the model that is asked."""

    def reply(body: dict[str, Any]) -> Any:
        said = brains[body["model"]](body)
        if type(said) in (tuple, list, str):  # all else is the server's own, such as Raw
            return completion(said, len(body["messages"]))
        return said

    return reply


class Films:
    """The corpus as these models know it: of each attribute a value, and the sentence that says it."""

    def __init__(self, corpus: Corpus, name: Callable[[str], str] = str) -> None:
        self.said: dict[tuple[str, str], tuple[str, str]] = {}
        self.films: dict[str, str] = {}
        self.people: dict[str, str] = {}
        for one in corpus.documents():
            known = name(one.id)
            (self.people if one.kind == "directors" else self.films)[one.title] = known
            for fact in one.facts:
                start = one.text.rfind(". ", 0, fact.start) + 1
                sentence = one.text[start : one.text.find(".", fact.end)].strip()
                self.said[known, fact.attribute.split(".")[-1]] = str(fact.value), sentence
        self.alike = Counter(map(self._clues, self.films.values()))

    def _clues(self, film: str) -> tuple[str, str]:
        director = self.people[self.said[film, "director"][0]]
        return self.said[film, "genre"][0], self.said[director, "birth_year"][0]

    def question(self, title: str) -> dict[str, Any] | None:
        """A question about a film; None: it is none, or two fit."""
        seed = self.films.get(title)
        if seed is None or self.alike[self._clues(seed)] > 1:
            return None
        genre, year = self._clues(seed)
        director = self.people[self.said[seed, "director"][0]]
        return {
            "question": "Which is the film of which all of this is true, as its documents say: "
            f"{GENRE.format(genre)} and {BORN.format(year)}?",
            "answer": title,
            "answer_document": seed,
            "answer_quote": title,
            "clues": [
                {
                    "text": GENRE.format(genre),
                    "document": seed,
                    "quote": self.said[seed, "genre"][1],
                },
                {
                    "text": BORN.format(year),
                    "document": director,
                    "quote": self.said[director, "birth_year"][1],
                },
            ],
        }

    def votes(self, prompt: str) -> list[dict[str, Any]]:
        """Honest verdicts on an answer."""
        genre = re.search(GENRE.format(r"(\w+)"), prompt)
        year = re.search(BORN.format(r"(\d+)"), prompt)
        assert genre is not None
        assert year is not None
        given = re.search(r"<answer \w+>\n(.*)\n", prompt)
        assert given is not None
        film = self.films.get(given[1])
        if film is None:
            return [{"clue": one, "verdict": "not_found"} for one in (1, 2)]
        director = self.people[self.said[film, "director"][0]]
        found = ((film, "genre", genre[1]), (director, "birth_year", year[1]))
        votes = []
        for number, (name, attribute, wanted) in enumerate(found, 1):
            value, sentence = self.said[name, attribute]
            verdict = "supported" if value == wanted else "contradicted"
            votes.append({"clue": number, "verdict": verdict, "document": name, "quote": sentence})
        return votes


def brains(corpus: Corpus, name: Callable[[str], str] = str) -> dict[str, Brain]:
    """The honest ones: models ``writer``, ``answerer`` and ``verifier``; ``name`` gives ids."""
    films = Films(corpus, name)

    def writer(body: dict[str, Any]) -> Call | list[Call] | str:
        prompt = body["messages"][-1]["content"]
        if "fewer words" in prompt:
            question = prompt.split("\n")[1].replace(", as its documents say", "")
            clues = re.findall(r"^(\d+)\. (.+)$", prompt, re.MULTILINE)
            short = [{"number": int(number), "text": text} for number, text in clues]
            return "shortened", {"question": question, "clues": short}
        seed = re.search(r"(Film number \d+|Director \d+)", body["messages"][0]["content"])
        assert seed is not None
        question = films.question(seed[1])
        if question is None:
            return "Nothing can be asked about this document."
        if len(body["messages"]) == 1:
            director = films.said[films.films[seed[1]], "director"][0]
            return [("search", {"query": one, "k": 20}) for one in (seed[1], director)]
        return "hand_in", question

    def answerer(body: dict[str, Any]) -> Call | str:
        asked = next(m for m in body["messages"] if m["role"] == "user")["content"]
        if not body.get("tools") or len(body["tools"]) == 1:
            return "hand_in", {"answer": "Film number 0"}
        if body["messages"][-1]["role"] == "user":
            return "search", {"query": asked.split("\n")[0], "k": 5}
        hits = json.loads(body["messages"][-1]["content"])
        return "hand_in", {
            "answer": next(h["title"] for h in hits if h["title"].startswith("Film"))
        }

    def verifier(body: dict[str, Any]) -> Call | str:
        prompt = body["messages"][0]["content"]
        if len(body["messages"]) == 1:
            return "search", {"query": "birth year"}
        return "hand_in", {"verdicts": films.votes(prompt)}

    return {"writer": writer, "answerer": answerer, "verifier": verifier}


def open_brains(corpus: Corpus) -> dict[str, Brain]:
    """The honest ones for open questions: a report on a film and its director, and a judge who reads it."""
    films = Films(corpus)

    def report(title: str) -> dict[str, Any] | None:
        seed = films.films.get(title)
        if seed is None:
            return None
        director = films.people[films.said[seed, "director"][0]]
        facts = [
            (name, films.said[seed, name])
            for name in ("genre", "year", "director")
            if (seed, name) in films.said
        ]
        known = [(seed, *one) for one in facts] + [
            (director, "birth_year", films.said[director, "birth_year"])
        ]
        items = [
            {
                "text": f"says that its {name} is {value}",
                "weight": 2,
                "document": doc,
                "quote": quote,
            }
            for doc, name, (value, quote) in known
        ]
        items += [
            {"text": "says where it was shot, which nobody knows", "pitfall": True},
            {"text": "is no longer than a page", "dimension": "concision", "weight": 0.5},
            {"text": "names the film", "dimension": "coverage", "weight": 0.5},
        ]
        answer = f"{title} is the film in question. " + " ".join(
            f"Of it we read: the {name} is {value}." for _, name, (value, _) in known
        )
        return {
            "question": f"Give an account of the film that came out of this: {seed.upper()} and who made it.",
            "items": items, "answer": answer + " That is all that the documents hold about it.",
        }  # fmt: skip

    def writer(body: dict[str, Any]) -> Call | list[Call] | str:
        prompt = body["messages"][0]["content"]
        seed = re.search(r"(Film number \d+|Director \d+)", prompt)
        assert seed is not None
        made = report(seed[1])
        return ("hand_in", made) if made else "Nothing can be asked about this document."

    def answerer(body: dict[str, Any]) -> Call | str:
        if not body.get("tools") or len(body["tools"]) == 1:
            return "hand_in", {"answer": "I believe that it was a drama of long ago."}
        return "hand_in", {"answer": "It is a film. Of it we read: the genre is unknown to me."}

    def verifier(body: dict[str, Any]) -> Call | str:
        prompt = next(m for m in body["messages"] if m["role"] == "user")["content"]
        if "<items" in prompt:
            return "verdicts", {"verdicts": judged(prompt)}
        facts = re.search(r"<facts \w+>\n(.*?)\n</facts", prompt, re.DOTALL)
        assert facts is not None
        seed = re.search(r"this: (\S+)", prompt)
        assert seed is not None
        votes = []
        for number, line in enumerate(facts[1].splitlines(), 1):
            found = re.search(r"its (\w+) is (.+)$", line)
            assert found is not None
            name = seed[1].lower()
            if found[1] == "birth_year":
                name = films.people[films.said[name, "director"][0]]
            value, quote = films.said[name, found[1]]
            verdict = "supported" if value == found[2] else "contradicted"
            votes.append({"clue": number, "verdict": verdict, "document": name, "quote": quote})
        return "hand_in", {"verdicts": votes}

    def judged(prompt: str) -> list[dict[str, Any]]:
        parts = {
            name: re.search(rf"<{name} (\w+)>\n(.*?)\n</{name} \1>", prompt, re.DOTALL)
            for name in ("items", "answer")
        }
        assert parts["items"] is not None
        assert parts["answer"] is not None
        answer, verdicts = parts["answer"][2], []
        for line in parts["items"][2].splitlines():
            item = json.loads(line)
            wanted = re.search(r"its (\w+) is (.+)$", item["text"])
            quote = f"the {wanted[1]} is {wanted[2]}." if wanted else ""
            if item["kind"] in ("concision", "coverage") and "Of it we read" in answer:
                quote = "Of it we read"
            met = bool(quote) and quote in answer
            verdicts.append(
                {"id": item["id"], "met": met, "quote": quote if met else "", "reason": "it"}
            )
        return verdicts

    return {"writer": writer, "answerer": answerer, "verifier": verifier}
