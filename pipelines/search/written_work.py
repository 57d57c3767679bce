"""One question with a short answer at work: written, made harder, answered, verified."""

from __future__ import annotations

from collections.abc import Sequence

from envgen.core.types import GateStatus
from envgen.pipelines.search.roles import (
    Library,
    QuestionDraft,
    Role,
    answer,
    shorten,
    verify,
    write,
)
from envgen.pipelines.search.validate import written_leak, written_single_search
from envgen.pipelines.search.work import (
    VERIFIER,
    Asking,
    QuestionOutcome,
    QuestionWork,
    without_names,
)
from envgen.pipelines.search.written import OtherAnswer, Pass, WrittenQuestion, verified
from envgen.verifiers.answers import accepts, fold, read


class WrittenWork(QuestionWork):
    """Questions with short answers."""

    def question(self, asking: Asking) -> QuestionOutcome:
        """Write a question, make it harder while it is too easy, and have it verified."""
        config, number, language = self.config, asking.number, asking.language
        run, draft = write(
            self.agents.writer, self.library, asking.seed, Role(),
            depth=asking.depth, breadth=asking.breadth, language=language, name=self.name(number, "write"),
        )  # fmt: skip
        self.count(run.usage)
        if draft is None:
            return QuestionOutcome(None, f"the writer: {run.ended}")
        why = ""
        for turn in range(config.rewrites + 1):
            if turn < config.rewrites:
                name = self.name(number, "shorten", turn)
                asked, shorter = shorten(
                    self.agents.writer, self.library, draft, Role(), language=language, name=name
                )
                self.count(asked.usage)
                if shorter is None and turn:
                    break
                draft = shorter or draft
            question = self._blank(draft, language)
            why = _shown_at_once(question, self.library)
            if not why:
                others, why = self._answers(draft, number, turn)
            if not why:
                return self._verified(question, draft, others, number, turn)
        return QuestionOutcome(None, why)

    def _blank(self, draft: QuestionDraft, language: str) -> WrittenQuestion:
        return WrittenQuestion(
            question=draft.question, language=language, answer=draft.answer, clues=draft.clues,
            source=draft.source, source_quote=draft.source_quote,
            writer=self.agents.writer.name, verifier=self.agents.verifier.name,
        )  # fmt: skip

    def _answers(self, draft: QuestionDraft, number: int, turn: int) -> tuple[dict[str, str], str]:
        """Other answers than the writer's and who gave them; or why the question is not kept."""

        def ask(place: int) -> str:
            policy, role = self.agents.answerers[place]
            name = self.name(number, "answer", turn, place)
            run = answer(policy, self.library, draft.question, role, name=name)
            self.count(run.usage)
            return run.answer.answer.strip() if run.answer else ""

        others: dict[str, str] = {}
        given = list(self.beside.map(ask, range(len(self.agents.answerers))))
        for one, (policy, _) in zip(given, self.agents.answerers, strict=True):
            if one and accepts(draft.answer, read(one)):
                return {}, "too easy: an answerer gave the answer"
            if one:
                same = next((other for other in others if fold(other) == fold(one)), one)
                others[same] = ", ".join(filter(None, (others.get(same), policy.name)))
        return others, "" if others else "nobody gave another answer"

    def _verified(
        self,
        question: WrittenQuestion,
        draft: QuestionDraft,
        others: dict[str, str],
        number: int,
        turn: int,
    ) -> QuestionOutcome:
        """Have all answers verified, the writer's first: what can't be kept then ends it."""
        (truth,) = self._passes(draft, [str(draft.answer.values[0])], number, turn, 0)
        found = question.model_copy(update={"truth": truth})
        why = verified(found)
        if why != "nobody gave another answer":
            return QuestionOutcome(None, without_names(why))
        passes = self._passes(draft, list(others), number, turn, 1)
        candidates = tuple(
            OtherAnswer(answer=given[:2_000], by=by[:200], passes=votes)
            for (given, by), votes in zip(others.items(), passes, strict=True)
        )
        found = found.model_copy(update={"candidates": candidates})
        why = verified(found)
        return QuestionOutcome(None, without_names(why)) if why else QuestionOutcome(found)

    def _passes(
        self, draft: QuestionDraft, answers: Sequence[str], number: int, turn: int, first: int
    ) -> list[tuple[Pass, ...]]:
        """The passes over each answer, all at the same time."""

        def one(place: int, which: int) -> Pass:
            name = self.name(number, "verify", turn, first + place, which)
            given = answers[place]
            run, votes = verify(
                self.agents.verifier, self.library, draft, given, VERIFIER, name=name
            )
            self.count(run.usage)
            return votes

        asked = [
            [self.beside.submit(one, place, which) for which in range(self.config.passes)]
            for place in range(len(answers))
        ]
        return [tuple(future.result() for future in futures) for futures in asked]


def _shown_at_once(question: WrittenQuestion, library: Library) -> str:
    """Why the cheap gates refuse a question; empty: they don't."""
    for found in (
        written_leak(question, library.page),
        written_single_search(question, library.top),
    ):
        if found.status is not GateStatus.PASSED:
            return f"{found.gate}: the answer is shown"
    return ""
