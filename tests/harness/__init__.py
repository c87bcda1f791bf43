"""One suite for every harness: the same scenarios for Celeriac's own loop and for each framework's adapter."""
