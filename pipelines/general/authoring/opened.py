"""A task whose parameters are to be found over given rows."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from random import Random

from envgen.core.ir import Scalar
from envgen.pipelines.general.authoring.analysis import Analysis, Params
from envgen.pipelines.general.authoring.blueprint import Blueprint
from envgen.pipelines.general.authoring.rows import Drawing
from envgen.pipelines.general.authoring.rules import parsed
from envgen.pipelines.general.semantics.evaluator import Compiler, Frame
from envgen.pipelines.general.semantics.tables import Tables


class OpenTask:
    """What every tuner needs: the rules compiled once over the rows, and what each parameter may be."""

    def __init__(
        self, blueprint: Blueprint, analysis: Analysis, tables: Tables, rng: Random, fixed: Params
    ) -> None:
        self.blueprint, self.analysis = blueprint, analysis
        self.problem, self.names = analysis.problem, analysis.names
        self.tables, self.rng, self.fixed = tables, rng, fixed
        self.compiler = Compiler(analysis.problem, tables, params="free")
        self.edges = {name: edge for name, edge in analysis.edges.items() if name not in fixed}

    def frame(self, params: Mapping[str, Scalar]) -> Frame:
        """A frame with these parameters."""
        frame = self.compiler.frame()
        frame.params = params
        return frame

    def drawn(self) -> Params | None:
        """All parameters but the edges, drawn without looking at any rule; None if one has no value."""
        params = dict(self.fixed)
        for name in self.names:
            if name not in params and name not in self.edges:
                values = self.values(name, params)
                if values == []:
                    return None
                params[name] = self.rng.choice(values) if values else self.draw(name, params)
        return params

    def values(self, name: str, params: Mapping[str, Scalar]) -> list[Scalar] | None:
        """What a parameter may be: keys of rows, or values of a column; None for a draw."""
        text = self.blueprint.domain.params[self.analysis.stem(name)]
        node = parsed(text)
        if isinstance(node, ast.Name) and node.id in self.tables:
            return list[Scalar](sorted(self.tables[node.id]))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            column = {row[node.attr] for row in self.tables[node.value.id].values()}
            return sorted(column - {None}, key=str)
        if isinstance(node, ast.GeneratorExp):
            return list(self.compiler.compile(self.blueprint.rows(text))(self.frame(params)))
        return None

    def draw(self, name: str, params: Params) -> Scalar:
        """A value of a parameter whose domain is a draw; earlier parameters may stand in it."""
        domain = self.blueprint.domain
        known = {**domain.constants, **domain.lists, **params}
        drawing = Drawing(rng=self.rng, tables=self.tables, known=known)
        value: Scalar = self.blueprint.draws.draw(domain.params[self.analysis.stem(name)])(drawing)
        return value
