"""Where `seaweedmq up` keeps a cluster that was told of no folder, and whoever is called beside it looks."""

from pathlib import Path
from typing import Final

LOCAL_DATA: Final = Path("seaweedmq-data")
"""Below the current folder."""
STORAGE: Final = "storage"
"""In the folder of a local cluster: the root of its storage."""
LOCAL_STORAGE: Final = LOCAL_DATA / STORAGE
