"""Spread work over machines."""
