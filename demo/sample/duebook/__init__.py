"""Invoices for subscriptions, from a CSV file."""
