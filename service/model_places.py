"""What a request worker needs before it says that it is ready: its device and its models' folders.

Without them every request would end in an error that another worker would not have given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from attributary.schemas.errors import ConfigurationError


def check_roots(roots: Iterable[Path]) -> None:
    """Raise ConfigurationError where models' folders cannot be read."""
    for root in roots:
        if not root.exists():
            why = "does not exist: create or mount it"
        elif not root.is_dir():
            why = "is no folder: name the one that it lies in"
        elif not os.access(root, os.R_OK | os.X_OK):
            why = "cannot be read by this user: change its permissions"
        else:
            continue
        raise ConfigurationError(
            f"the models' folder {str(root)!r} {why}, or name another "
            "(--model-root, the models' setting 'roots')"
        )


def check_device(device: str) -> None:
    """Raise ConfigurationError for a device that there is none of, or that torch cannot see."""
    if not re.fullmatch(r"cpu|cuda:[0-9]{1,3}", device):
        raise ConfigurationError(f"--device is cpu or cuda:N, such as cuda:0; got {device!r}")
    if device == "cpu":
        return
    try:
        import torch
    except ImportError:
        raise ConfigurationError(
            f"--device {device}: torch is not installed, which is needed to compute there: "
            "pip install 'attributary[ondemand]', or use --device cpu"
        ) from None
    seen = torch.cuda.device_count()
    if int(device.removeprefix("cuda:")) >= seen:
        build = "is built without CUDA" if torch.version.cuda is None else "is built for CUDA"
        raise ConfigurationError(
            f"--device {device}: torch sees {seen} CUDA devices here, and {build}: check the driver "
            "(nvidia-smi), CUDA_VISIBLE_DEVICES and torch's build, or use --device cpu"
        )
