"""What ``envgen.policies.server`` is made of: OpenAI's requests and replies over the engine."""
