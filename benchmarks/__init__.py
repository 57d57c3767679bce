"""Measurements: each file is a script that prints its figures beside a target or a peer."""
