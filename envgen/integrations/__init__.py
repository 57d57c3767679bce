"""A dataset where its users already work: an environment server, and what trainers load."""
