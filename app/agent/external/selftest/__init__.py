"""A small task with a scripted model that shows whether an external agent works here."""
