"""The sandbox and the project that the verifier's tests use."""

from collections.abc import Callable

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.sandboxes import provider
from tests.support.verifier_trial import Trial

__all__ = ["provider"]


@pytest.fixture
def trial(provider: BubblewrapProvider) -> Callable[..., Trial]:
    return lambda files, **settings: Trial(provider, files, **settings)
