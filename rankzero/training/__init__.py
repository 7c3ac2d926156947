"""The loop's plumbing: engines, loaders, optimizers, schedulers, precision and accumulation."""
