"""Programs saved by torch: .pt2 (torch.export) and TorchScript. Opening one can run code.

The worker has compared the artefact's sha256 with the operator's list before this process was started.
"""

from __future__ import annotations

import warnings
from io import BytesIO
from itertools import chain
from typing import Any

import torch
from torch.export.passes import move_to_device_pass

from attributary.workers.ondemand.loaders.loaded import LoadedModel, Source, not_loadable
from attributary.workers.ondemand.loaders.sniff import identify
from attributary.workers.ondemand.loaders.torch_module import adapt, device_of, dtype_of


def load(source: Source) -> LoadedModel:
    """Open the program on the device."""
    device = device_of(source)
    if identify(source) != source.format:
        raise not_loadable(f"artefact {source.uri!r} is no {source.format} file")
    data = BytesIO(source.read())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = _open(source, data, device)
    except Exception as error:  # whatever a damaged file makes of it
        raise not_loadable(
            f"torch cannot open artefact {source.uri!r}: {str(error).strip().splitlines()[:1]}"
        ) from error
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    dtype = dtype_of(chain(module.parameters(), module.buffers()))
    return adapt(module, source, device, dtype=dtype)


def _open(source: Source, data: BytesIO, device: torch.device) -> Any:
    if source.format == "torchscript":
        load_script: Any = torch.jit.load
        return load_script(data, map_location=device).eval()
    program = torch.export.load(data)
    if device.type != "cpu":
        program = move_to_device_pass(program, device)
    return program.module()
