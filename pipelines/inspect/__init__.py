"""Inspectors: a model reads trajectories of a run and files what is wrong with the environment."""
