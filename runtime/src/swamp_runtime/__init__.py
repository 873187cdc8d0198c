"""Run the sparse networks of `.swamp` files on a CPU. This package needs numpy alone, not torch.

import swamp_runtime

model = swamp_runtime.load("model.swamp")
logits = model(images)  # float32, (batch, channels, height, width)
"""

from swamp_runtime.library import LibraryUnavailable, instructions
from swamp_runtime.model import Malformed, Model, Port, load, load_bytes

__all__ = ["LibraryUnavailable", "Malformed", "Model", "Port", "__version__", "instructions", "load", "load_bytes"]
__version__ = "1.0.0"
