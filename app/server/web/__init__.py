"""The dashboard, the JSON API and the metrics."""
