from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_models import weather_lessons, write_random_model, write_taught_model

from envgen.policies.encoding import EncodingConfig
from envgen.policies.server import PolicyServer, ServeConfig


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that writes noise."""
    folder = tmp_path_factory.mktemp("models") / "noise"
    write_random_model(folder)
    return folder


@pytest.fixture(scope="session")
def weather_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thinking model that knows one call and one answer by heart."""
    folder = tmp_path_factory.mktemp("models") / "weather"
    write_taught_model(
        folder, weather_lessons(thinking=True), EncodingConfig(kind="compact", thinking=True)
    )
    return folder


@pytest.fixture(scope="session")
def noise(random_model: Path) -> Iterator[PolicyServer]:
    """A server of noise."""
    config = ServeConfig(model=str(random_model), port=0, threads=1, max_batch=16)
    with PolicyServer(config).running() as server:
        yield server


@pytest.fixture(scope="session", params=["compact", "dsml"])
def babble(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[PolicyServer]:
    """A server of noise in each encoding, by models that think."""
    folder = tmp_path_factory.mktemp("models") / "babble"
    write_random_model(folder, EncodingConfig(kind=request.param, thinking=True))
    with PolicyServer(ServeConfig(model=str(folder), port=0, threads=1)).running() as server:
        yield server


@pytest.fixture(scope="session")
def weather(weather_model: Path) -> Iterator[PolicyServer]:
    """A server of the model that knows the weather."""
    config = ServeConfig(model=str(weather_model), port=0, threads=1)
    with PolicyServer(config).running() as server:
        yield server
