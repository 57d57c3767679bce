"""The family of search tasks: a question whose answer stands in a corpus, and one answer."""

from envgen.core.families import INWARD, Family

SEARCH = Family(
    name="search",
    env="envgen.environments.search:SearchEnv",
    validator="envgen.pipelines.search.validate:SearchValidator",
    generate="envgen.pipelines.search.generate:generate_search",
    command="envgen.cli.search:SearchCommand",
    players=("random-valid", "bm25-reader"),
    readable="envgen.pipelines.search.show:readable",
    tags=("agent", "search", "question-answering", "tool-use"),
    solution_file="question.json",
    verifier_file="answer.json",
    measured=False,
    packed=True,
    shipped="package:search_questions",
    gates=dict.fromkeys(("unique", "chain", "minimal", "near_answers", "leak", "prior"), INWARD)
    | {
        "unstated": "the documents' texts: numbers, years and names that no fact holds",
        "single_search": "what the search engine shows of the texts",
        "quotes": "the documents' texts, for what a model quotes of them",
        "verified": "agents that look up each candidate in conversations of their own (told: by one model or"
        " several)",
        "judged": "a judge's verdicts in conversations of its own, and the quotes that it gives",
    },
    about="""\
**Search tasks.** Each question has exactly one answer in its corpus, and needs every clue: both were counted
over all documents. No single search shows the answer of a question that takes several documents. Documents
are their authors', under the licences named below; what no document states does not count.""",
)
