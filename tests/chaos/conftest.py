"""The logs of every process are shown when a test fails, as for the tests of tasks."""

from tests.tasks.conftest import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
