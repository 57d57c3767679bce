"""Authors of environments from scratch: the kinds of work that an environment may be about."""
