"""Records, errors, log, text and redaction: what every other package may import."""
