"""What ``Accelerator`` was asked for, checked and completed before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from rankzero.config.enums import RNGType
from rankzero.config.environment import find_setting, parse_bool, read_int
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


# Settings of Accelerate's launcher that ask for what this version does not do.
LATER_SETTINGS = ("USE_FSDP", "USE_DEEPSPEED", "USE_MEGATRON_LM", "USE_PARALLELISM_CONFIG")


def refuse_later_settings(environ: Mapping[str, str] | None = None) -> None:
    """Raise for the first environment variable that asks for what this version does not do."""
    for name in LATER_SETTINGS:
        found = find_setting(name, environ)
        if found is not None and parse_bool(*found):
            raise _not_built(*found)
    found = find_setting("DYNAMO_BACKEND", environ)
    if found is not None and found[1].lower() != "no":
        raise _not_built(*found)


def _not_built(variable: str, value: str) -> NotImplementedError:
    return NotImplementedError(
        f"{variable}={value}: this version of rankzero does not act on {variable}; unset it."
    )


def check_kind(name: str, value: Any, kind: type) -> None:
    """Check that an argument is left open or of its kind.

    Raises:
        TypeError: names the argument, its value and the kind.
    """
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name}={value!r}: pass a {kind.__name__}.")


def check_generators(rng_types: Sequence[Any] | None) -> None:
    """Check the names of generators that are brought into step.

    Raises:
        TypeError: they are not in a list.
        ValueError: one is not known.
    """
    if isinstance(rng_types, str):
        raise TypeError(f"rng_types={rng_types!r}: write a list, such as [{rng_types!r}].")
    for name in rng_types or ():
        RNGType.parse("rng_types", name)


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
        TypeError: not a list.
        ValueError: an object of another kind, or two of one class.
    """
    found: dict[Any, Any] = {}
    if isinstance(handlers, KwargsHandler):
        raise TypeError(f"kwargs_handlers={handlers!r}: write a list of settings objects.")
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
    check_kind("project_config", config, ProjectConfiguration)
    if project_dir is not None and not isinstance(project_dir, (str, os.PathLike)):
        raise TypeError(f"project_dir={project_dir!r}: write a path.")
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
    check_kind("split_batches", split_batches, bool)
    check_kind("dataloader_config", config, DataLoaderConfiguration)
    if config is None:
        return DataLoaderConfiguration(split_batches=bool(split_batches))
    for name in ("dispatch_batches", "use_stateful_dataloader"):
        refuse_later_arguments(**{f"dataloader_config.{name}": getattr(config, name) or None})
    if split_batches is not None and split_batches != config.split_batches:
        raise ValueError(
            f"split_batches={split_batches!r} and dataloader_config.split_batches="
            f"{config.split_batches!r} differ: write the one in dataloader_config."
        )
    return config


def accumulation_plugin(
    steps: Any, plugin: GradientAccumulationPlugin | None
) -> GradientAccumulationPlugin:
    """Return the accumulation in force: the plugin's, the argument's, or what the launcher set.

    The argument's default, 1, counts as unset: the launcher's flag or environment then decides.
    """
    name = "gradient_accumulation_steps"
    check_kind("gradient_accumulation_plugin", plugin, GradientAccumulationPlugin)
    if not isinstance(steps, (bool, int)) and isinstance(steps, Integral):
        steps = int(steps)  # numpy's
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
