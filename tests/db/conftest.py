"""Both kinds of store; what runs against a server belongs to `make test-scale`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from db.engine import Store, open_store

Fresh = Callable[[], Store]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.scale)])
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fresh]:
    """Opens an empty store at each call."""
    made: list[Store] = []

    def make() -> Store:
        if request.param == "sqlite":
            folder: Path = tmp_path_factory.mktemp("store")
            made.append(open_store(folder / "x.db"))
        else:
            made.append(open_store(request.getfixturevalue("server").new_database()))
        return made[-1]

    yield make
    for store in made:
        store.close()
