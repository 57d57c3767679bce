"""Parts of ``envgen.policies.server``: OpenAI's requests and replies over the engine."""
