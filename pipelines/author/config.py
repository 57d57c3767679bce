"""Which categories, and who writes their environments."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from envgen.core.limits import Json, Label, Line
from envgen.core.types import Record
from envgen.pipelines.author.panel import Band


class AuthorConfig(Record):
    """Which categories, and who writes and reads their pages."""

    author: Line = ""
    """The model that writes domain pages, as --policy names one. With it, environments of any category are
    made: --category is then what they are to be about."""
    reviewer: Line = ""
    """The model that reads tasks as an agent would; empty: the author's, in a conversation of its own."""
    form: Literal["page", "code"] = "page"
    """page: a domain page, of which nothing runs. code: tools, data, checks and a solution in Python, for
    what a page can't say; such code runs in sandboxes alone, and one task an environment is made."""
    options: dict[Label, Json] = Field(default_factory=dict)
    """Settings of the models' clients, such as api_key_env=NAME."""
    sample_categories: int | None = Field(default=None, ge=1, le=5_000)
    """Draw so many categories from the taxonomy, without near-duplicates."""
    categories_file: Path | None = None
    """The taxonomy: .jsonl, or .txt with a name a line. None: the 354 in the package."""
    corpus: Path | None = None
    """What authors search: a corpus of `envgen corpus build`. None: the one in the package."""
    submissions: int = Field(default=6, ge=1, le=100)
    """Times that an author may hand its page in."""
    turns: int = Field(default=80, ge=1, le=10_000)
    """Replies of an author."""
    panel: tuple[Line, ...] = ()
    """Policies that solve what an author made, as --policy names one; the author then makes it harder or
    easier until they pass as often as --target-pass says."""
    target_pass: Band = "0.1..0.6"
    """The band of pass rates that the panel is to have, over all tasks. A page that misses it when the
    submissions are spent is kept all the same, the nearest one, and its rate is told."""
    panel_episodes: int = Field(default=4, ge=1, le=1_000)
    """Of each policy of the panel, for each task."""
    max_tokens_per_category: int | None = Field(default=None, ge=1)
    """Tokens of an author's conversation, all requests added up."""
