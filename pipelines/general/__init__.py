"""Synthesis of general-agent <environment, tools, task, verifier> tuples."""
