"""The sandbox and the project that the verifier's tests use."""

import os
from collections.abc import Callable

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.verifier_trial import Trial


@pytest.fixture(scope="session")
def provider(tmp_path_factory: pytest.TempPathFactory) -> BubblewrapProvider:
    root = tmp_path_factory.mktemp("verifier")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return BubblewrapProvider(root / "sandboxes", caches=root / "caches", environment=environment)


@pytest.fixture
def trial(provider: BubblewrapProvider) -> Callable[..., Trial]:
    return lambda files, **settings: Trial(provider, files, **settings)
