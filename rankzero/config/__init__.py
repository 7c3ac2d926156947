"""Settings: enumerations, plugin dataclasses, environment variables. Reads no other part."""
