"""Import check: LaunchError [no-warp] without NVIDIA Warp, a warning if its version is not the tested one."""

import importlib.util
import warnings
from importlib.metadata import version

from ...errors import LaunchError

TESTED = "1.19.0"

_found = importlib.util.find_spec("warp")
if _found is None or _found.origin is None:  # a folder of this name is no package
    text = "NVIDIA Warp is not installed, so there is no program of it to watch."
    raise LaunchError(text, slug="no-warp", instead=f"pip install 'workbench[warp]'   (warp-lang {TESTED})")
if version("warp-lang") != TESTED:
    warnings.warn(
        f"watch() was tested with Warp {TESTED}; this is {version('warp-lang')}, of which some calls may be missed.",
        stacklevel=2,
    )
