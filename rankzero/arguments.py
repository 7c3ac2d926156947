"""What ``Accelerator`` was asked for, checked and completed before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankzero.config.environment import find_setting, read_int
from rankzero.config.plugins import (
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    ProjectConfiguration,
)

HANDLERS = (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
)


def refuse_later_arguments(**arguments: Any) -> None:
    """Raise for the first argument that asks for what this version does not do."""
    for name, value in arguments.items():
        if value is None or (name == "dynamo_backend" and str(value).lower() == "no"):
            continue
        raise NotImplementedError(
            f"{name}={value!r}: this version of rankzero does not act on {name}; leave it out."
        )


def handlers_by_class(handlers: Sequence[KwargsHandler] | None) -> dict[Any, Any]:
    """Return settings objects by their class.

    Raises:
        ValueError: an object of another kind, or two of one class.
    """
    found: dict[Any, Any] = {}
    for handler in handlers or ():
        if not isinstance(handler, HANDLERS):
            names = ", ".join(kind.__name__ for kind in HANDLERS)
            raise ValueError(f"kwargs_handlers holds {handler!r}: each must be one of {names}.")
        if type(handler) in found:
            raise ValueError(
                f"kwargs_handlers holds two {type(handler).__name__}: put all settings into one."
            )
        found[type(handler)] = handler
    return found


def project_configuration(project_dir: Any, config: ProjectConfiguration | None) -> Any:
    """Return the project's settings, with ``project_dir`` put in where it was left open."""
    if config is None:
        return ProjectConfiguration(project_dir=project_dir)
    if project_dir is not None:
        if config.project_dir is not None and str(config.project_dir) != str(project_dir):
            raise ValueError(
                f"project_dir={str(project_dir)!r} and project_config.project_dir="
                f"{str(config.project_dir)!r} differ: write one of them."
            )
        config.set_directories(project_dir)
    return config


def loader_configuration(
    split_batches: bool | None, config: DataLoaderConfiguration | None
) -> DataLoaderConfiguration:
    """Return how loaders are divided; ``split_batches`` is the older place of that field."""
    if config is None:
        return DataLoaderConfiguration(split_batches=bool(split_batches))
    if split_batches is not None and split_batches != config.split_batches:
        raise ValueError(
            f"split_batches={split_batches!r} and dataloader_config.split_batches="
            f"{config.split_batches!r} differ: write the one in dataloader_config."
        )
    return config


def accumulation_plugin(
    steps: int, plugin: GradientAccumulationPlugin | None
) -> GradientAccumulationPlugin:
    """Return the accumulation in force: the plugin's, the argument's, or what the launcher set.

    The argument's default, 1, counts as unset: the launcher's flag or environment then decides.
    """
    name = "gradient_accumulation_steps"
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"{name}={steps!r}: write a whole number of at least 1.")
    if plugin is not None:
        if steps != 1 and plugin.num_steps not in (None, steps):
            raise ValueError(
                f"{name}={steps} and gradient_accumulation_plugin.num_steps={plugin.num_steps} "
                "differ: write one of them."
            )
        if plugin.num_steps is None:
            plugin.num_steps = steps if steps != 1 else _steps_from_environment()
        return plugin
    return GradientAccumulationPlugin(num_steps=steps if steps != 1 else _steps_from_environment())


def _steps_from_environment() -> int:
    steps = read_int("GRADIENT_ACCUMULATION_STEPS")
    if steps is not None and steps < 1:
        found = find_setting("GRADIENT_ACCUMULATION_STEPS")
        variable = found[0] if found else "GRADIENT_ACCUMULATION_STEPS"
        raise ValueError(f"{variable}={steps}: write a whole number of at least 1.")
    return 1 if steps is None else steps
