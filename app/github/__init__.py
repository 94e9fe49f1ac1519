"""GitHub: client, authentication, models, reader and effects. githubkit is imported only here."""
