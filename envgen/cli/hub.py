"""``envgen push`` and ``envgen pull``: datasets on the Hugging Face Hub."""

from __future__ import annotations

from envgen.cli.command import Command, Makes, ReadsDataset
from envgen.cli.console import progress, say
from envgen.cli.records import write_json
from envgen.core.environ import secret
from envgen.core.limits import Label


class PushCommand(ReadsDataset):
    """Put a dataset on the Hugging Face Hub, as one commit.

    All of it is pushed: prompts, databases, solutions, verifiers and proof. `datasets.load_dataset` reads its
    tables, `envgen pull` the whole.
    """

    places = {"REPO": "repo"}
    examples = (
        "envgen push ds/ me/my-dataset",
        "envgen push ds/ me/my-dataset --private --token-env HF_TOKEN",
    )

    repo: Label
    """OWNER/NAME; made if it is not there."""
    private: bool = False
    """If it is made: for its owner alone."""
    endpoint: Label | None = None
    """URL of another Hub; default: HF_ENDPOINT, or Hugging Face's."""
    token_env: Label | None = None
    """Environment variable with the token; default: that of `hf auth login`."""

    def execute(self) -> None:
        """Push, and say where it is."""
        from envgen.integrations.hub import push

        opened = self.opened()
        token = secret(self.token_env, required=self.token_env is not None)
        with progress("pushing"):
            found = push(
                opened, self.repo, private=self.private, endpoint=self.endpoint, token=token
            )
        write_json(self.figures, found)
        say(f"pushed {found.tasks} tasks to {found.url}, commit {found.commit[:12]}")


class PullCommand(Makes, Command):
    """Get a dataset from the Hugging Face Hub, and check it: every hash, every task's evidence.

    Its code is a stranger's: it runs in sandboxes alone, unless a command is told --trust. `envgen validate`
    proves it again.
    """

    places = {"REPO": "repo"}
    examples = (
        "envgen pull owner/name --out ds/",
        "envgen pull owner/name --revision v1 --out ds/",
    )

    repo: Label
    """OWNER/NAME."""
    revision: Label | None = None
    """Branch, tag or commit; default: the newest."""
    endpoint: Label | None = None
    """URL of another Hub; default: HF_ENDPOINT, or Hugging Face's."""
    token_env: Label | None = None
    """Environment variable with the token, where it is private; default: that of `hf auth login`."""
    unproven: bool = False
    """Accept tasks whose evidence is missing or negative."""

    def execute(self) -> None:
        """Pull, and say what came."""
        from envgen.integrations.hub import pull

        token = secret(self.token_env, required=self.token_env is not None)
        with progress("pulling"):
            found = pull(
                self.repo, self.out, revision=self.revision, endpoint=self.endpoint, token=token,
                unproven=self.unproven,
            )  # fmt: skip
        write_json(self.figures, found)
        counts = f"{found.environments} environments, {found.tasks} tasks"
        say(f"pulled {found.repo} at {found.commit[:12]} to {found.path}: {counts}")
