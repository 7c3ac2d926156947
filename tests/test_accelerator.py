"""The front: what is asked for is done, or turned down with what to write instead."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rankzero import (
    Accelerator,
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
)
from rankzero.config.plugins import ProjectConfiguration
from tests.ranks import run_ranks


@pytest.mark.parametrize(
    "name",
    [
        "fsdp_plugin",
        "deepspeed_plugin",
        "megatron_lm_plugin",
        "dynamo_plugin",
        "parallelism_config",
    ],
)
def test_an_argument_of_a_later_version_is_turned_down_never_ignored(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"{name}=.*does not act on {name}"):
        Accelerator(**{name: object()})


def test_dynamo_backend_no_asks_for_nothing() -> None:
    Accelerator(dynamo_backend="no")
    with pytest.raises(NotImplementedError, match="dynamo_backend='inductor'"):
        Accelerator(dynamo_backend="inductor")


def test_settings_objects_are_known_and_given_once() -> None:
    with pytest.raises(ValueError, match="kwargs_handlers holds 3"):
        Accelerator(kwargs_handlers=[3])
    with pytest.raises(ValueError, match="two AutocastKwargs"):
        Accelerator(kwargs_handlers=[AutocastKwargs(), AutocastKwargs()])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kwargs_handlers": AutocastKwargs()}, "kwargs_handlers=.*write a list"),
        ({"dataloader_config": {"split_batches": True}}, "dataloader_config=.*DataLoaderConfig"),
        ({"project_config": "runs"}, "project_config='runs': pass a ProjectConfiguration"),
        ({"gradient_accumulation_plugin": 4}, "gradient_accumulation_plugin=4: pass a"),
        ({"split_batches": "no"}, "split_batches='no': pass a bool"),
        ({"project_dir": 5}, "project_dir=5: write a path"),
        ({"rng_types": "torch"}, r"rng_types='torch': write a list, such as \['torch'\]"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_turned_down_by_name(
    arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        Accelerator(**arguments)


def test_a_generator_that_is_not_known_is_turned_down() -> None:
    with pytest.raises(ValueError, match="rng_types='troch'.*Did you mean 'torch'"):
        Accelerator(rng_types=["troch"])


@pytest.mark.parametrize("option", ["dispatch_batches", "use_stateful_dataloader"])
def test_a_loader_option_of_a_later_version_is_turned_down_at_once(option: str) -> None:
    with pytest.raises(NotImplementedError, match=f"dataloader_config.{option}=True"):
        Accelerator(dataloader_config=DataLoaderConfiguration(**{option: True}))


@pytest.mark.parametrize(
    ("variable", "value", "unset"),
    [
        ("ACCELERATE_USE_FSDP", "true", "false"),
        ("RANKZERO_USE_DEEPSPEED", "1", "0"),
        ("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR", "no"),
    ],
)
def test_a_variable_that_asks_for_a_later_version_is_turned_down_never_ignored(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, unset: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(NotImplementedError, match=f"{variable}={value}: .*unset it"):
        Accelerator()
    monkeypatch.setenv(variable, unset)
    Accelerator()


def test_a_precision_that_the_environment_misspells_is_turned_down_with_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf61")
    with pytest.raises(ValueError, match="ACCELERATE_MIXED_PRECISION='bf61'.*'bf16'"):
        Accelerator()


def test_a_number_of_steps_may_be_numpys() -> None:
    assert Accelerator(gradient_accumulation_steps=np.int64(4)).gradient_accumulation_steps == 4


def test_two_spellings_of_one_setting_must_agree(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split_batches=True and dataloader_config"):
        Accelerator(split_batches=True, dataloader_config=DataLoaderConfiguration())
    with pytest.raises(ValueError, match="project_dir='a' and project_config"):
        Accelerator(project_dir="a", project_config=ProjectConfiguration(project_dir="b"))
    accelerator = Accelerator(project_dir=tmp_path, project_config=ProjectConfiguration())
    assert accelerator.project_dir == accelerator.logging_dir == tmp_path


def test_a_second_accelerator_with_other_settings_is_turned_down() -> None:
    Accelerator(mixed_precision="bf16")
    assert Accelerator().mixed_precision == "bf16"
    with pytest.raises(ValueError, match=r"mixed_precision='no'.*'bf16'"):
        Accelerator(mixed_precision="no")


def test_a_tracker_that_is_not_known_is_turned_down_before_training() -> None:
    with pytest.raises(ValueError, match="tensorbord.*Did you mean 'tensorboard'"):
        Accelerator(log_with="tensorbord")


def test_public_names_take_the_parameters_that_scripts_pass() -> None:
    expected = {
        "__init__": "device_placement split_batches mixed_precision gradient_accumulation_steps cpu "
        "dataloader_config deepspeed_plugin fsdp_plugin torch_tp_plugin megatron_lm_plugin rng_types "
        "log_with project_dir project_config gradient_accumulation_plugin "
        "step_scheduler_with_optimizer kwargs_handlers dynamo_backend dynamo_plugin "
        "deepspeed_plugins parallelism_config",
        "prepare": "args device_placement",
        "prepare_model": "model device_placement evaluation_mode",
        "clip_grad_norm_": "parameters max_norm norm_type",
        "gather_for_metrics": "input_data use_gather_object",
        "reduce": "tensor reduction scale",
        "pad_across_processes": "tensor dim pad_index pad_first",
        "init_trackers": "project_name config init_kwargs",
        "log": "values step log_kwargs",
        "get_tracker": "name unwrap",
        "unwrap_model": "model keep_fp32_wrapper keep_torch_compile",
        "split_between_processes": "inputs apply_padding",
        "save": "obj f safe_serialization",
    }
    for name, parameters in expected.items():
        signature = inspect.signature(getattr(Accelerator, name))
        assert [p for p in signature.parameters if p != "self"] == parameters.split(), name


def _ddp_settings() -> list:
    accelerator = Accelerator(
        kwargs_handlers=[
            DistributedDataParallelKwargs(find_unused_parameters=True, comm_hook="fp16")
        ]
    )
    model = nn.Linear(2, 1)
    frozen = nn.Linear(2, 1).requires_grad_(False)
    prepared, evaluated = accelerator.prepare(model), accelerator.prepare(frozen)
    accelerator.backward(prepared(torch.full((1, 2), float(accelerator.process_index + 1))).sum())
    return [
        prepared.find_unused_parameters,
        accelerator.unwrap_model(prepared) is model,
        evaluated is frozen,
        model.weight.grad.tolist(),
        sorted(accelerator.get_state_dict(prepared)),
        sorted(accelerator.get_state_dict(prepared, unwrap=False)),
        str(accelerator.distributed_type),
        accelerator.is_last_process,
    ]


def test_ddp_takes_its_settings_and_gives_the_bare_model_back() -> None:
    bare, wrapped = ["bias", "weight"], ["module.bias", "module.weight"]
    for rank, got in enumerate(run_ranks(_ddp_settings, 2)):
        assert got == [True, True, True, [[1.5, 1.5]], bare, wrapped, "MULTI_CPU", rank == 1]


def test_a_hook_setting_that_has_no_effect_is_turned_down() -> None:
    from rankzero.training.engines.ddp import DDPEngine

    for settings, match in (
        (DistributedDataParallelKwargs(comm_wrapper="fp16"), "comm_wrapper='fp16'"),
        (DistributedDataParallelKwargs(comm_hook="fp61"), "Did you mean 'fp16'"),
        (
            DistributedDataParallelKwargs(comm_hook="fp16", comm_state_option={"a": 1}),
            "comm_state_option",
        ),
    ):
        engine = DDPEngine(torch.device("cpu"), 2, {DistributedDataParallelKwargs: settings})
        with pytest.raises(ValueError, match=match):
            engine._register_hook(None, settings)  # type: ignore[arg-type]
