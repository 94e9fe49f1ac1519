"""The database: jobs, deliveries, messages, and the durable engine."""
