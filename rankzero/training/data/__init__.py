"""Loaders divided between the ranks."""
