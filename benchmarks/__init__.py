"""Measures Celeriac beside a stock Celery chain: ``python -m benchmarks``."""
