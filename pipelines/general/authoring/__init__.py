"""Domains as data: pages, and what draws rows, states problems and tunes parameters from them."""
