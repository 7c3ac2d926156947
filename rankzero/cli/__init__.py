"""The ``rankzero`` command. Nothing here imports torch before a command needs it."""
