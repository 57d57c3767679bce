"""Search-agent questions over a corpus, proven by counting."""
