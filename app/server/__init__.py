"""The server: webhook endpoint, supervisor, publisher, worker, dashboard and API."""
