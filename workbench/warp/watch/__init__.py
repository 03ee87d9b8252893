"""Programs of NVIDIA Warp: watched while they run, recorded as a tape of ours, their gradients checked.

`watch` runs a Warp program beside its twin; a `Session` is its record. `hooks` turns Warp's calls over to handlers
(`launch_calls`, `copy_calls`, ...), `recorder` makes each an event of our tape. `memory` gives each buffer of Warp a
twin, `rebind` translates kernels, `passes` takes the exact gradient beside each backward of Warp's, `verdicts` judges
and `causes` explains. Importing this needs `warp-lang`; importing the workbench does not.
"""

from .available import TESTED
from .compare import VerdictRow as Row, VerdictTable as Comparison
from .watch import Watch, watch

__all__ = ["TESTED", "Comparison", "Row", "Watch", "watch"]
__dir__ = __all__.copy
