"""Proof of a draft: gates that each try to show that the task is broken.

A gate is a function ``(Trial) -> GateResult``. ``GATES`` lists them, cheap ones first; ``prove`` runs them.
"""
