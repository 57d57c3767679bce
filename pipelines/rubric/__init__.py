"""Rubrics: a model judges answers item by item, is tested for it, and is only then believed."""
