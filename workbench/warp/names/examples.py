"""Folders of the meshes and pictures that examples of Warp load: in the wheel of `warp-lang`, if installed."""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

from ...errors import LaunchError

__all__ = ["get_asset_directory", "get_source_directory"]
__dir__ = __all__.copy


def get_source_directory() -> str:
    """The folder of Warp's examples. Raises LaunchError [not-here] where the package `warp-lang` is not installed.

    Warp itself is not imported.
    """
    spec = PathFinder.find_spec("warp")
    if spec is None or spec.origin is None:
        text = "the files of Warp's examples are not on this machine."
        why = "They come with the package warp-lang, which is looked for and not imported."
        instead = "pip install warp-lang, or the path of a file of yours"
        raise LaunchError(text, slug="not-here", why=why, instead=instead)
    return str(Path(spec.origin).resolve().parent / "examples")


def get_asset_directory() -> str:
    """The folder of the meshes and pictures of Warp's examples.

    Raises LaunchError [not-here] where `warp-lang` is not installed.
    """
    return str(Path(get_source_directory()) / "assets")
