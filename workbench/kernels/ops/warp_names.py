"""Names of NVIDIA Warp that are not in the language, each with the reason and what to write instead."""

from __future__ import annotations

from .functions import BUILTINS
from .random import STATEFUL

_OUTSIDE = "are not in the language"
_REASONS = {
    f"Meshes, volumes, hash grids, trees and textures {_OUTSIDE}: use arrays.":
        "mesh_ volume_ hash_grid_ bvh_ texture_ Mesh Volume HashGrid Bvh Texture2D Texture3D MarchingCubes",
    f"Tiles {_OUTSIDE}: write one thread per element.": "tile tile_ untile",
    f"Spatial vectors and transforms {_OUTSIDE}: use vec3 and quat.":
        "spatial_ transform transform_ transformation transformf transformd transformh",
    f"Decompositions {_OUTSIDE}: their derivative is singular where values meet.": "svd2 svd3 qr3 eig3",
    f"Noise functions {_OUTSIDE}: compute the field outside and pass it as an array.": "noise pnoise curlnoise",
    "Not built yet: only randf, randi, randu and randn are.": "poisson sample_",
    "Not built yet; quat_from_axis_angle, quat_rpy, quat_rotate and quat_to_matrix are.":
        "quat_slerp quat_from_matrix quat_to_axis_angle quat_to_rpy quat_between_vectors quat_twist quat_twist_angle",
    "The order of its arguments (cond, if_false, if_true) misled; write where(cond, if_true, if_false).": "select",
    f"Function values, assertions on the device and linear-algebra helpers {_OUTSIDE}.":
        "reversed lower_bound closest_point_edge_edge dense_gemm dense_chol dense_subs dense_solve mlp expect_eq "
        "expect_neq expect_near",
    "Not built yet.": "norm_huber norm_pseudo_huber smooth_normalize erfinv erfcinv cast",
    "`with wb.capture() as graph:` records a block of launches, `graph.replay()` repeats it.":
        "capture_begin capture_end capture_while capture_if Graph",
    "Not built yet.  ": "autograd optim sparse fem render sim indexedarray fabricarray func_native "
        "from_paddle to_paddle",
    "`from_dlpack` of the other library takes an array as it is.": "to_dlpack",
    "wb.interop.jax.function(kernel, dim=n) makes a kernel a function of JAX.": "jax_experimental",
}  # fmt: skip
REFUSED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def why_refused(name: str) -> str | None:
    """Why a name of Warp is not in the language; None for names that Warp does not have or that are in it."""
    if name in BUILTINS or name in STATEFUL:
        return None
    families = (reason for known, reason in REFUSED.items() if known.endswith("_") and name.startswith(known))
    return REFUSED.get(name) or next(families, None)
