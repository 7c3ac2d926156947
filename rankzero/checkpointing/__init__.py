"""Files that outlive the run: written whole or not at all."""
