"""Makers of problems, by area."""
