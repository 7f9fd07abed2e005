"""The default folder of a cluster that `seaweedmq up` starts, and where other commands look for it."""

from pathlib import Path
from typing import Final

LOCAL_DATA: Final = Path("seaweedmq-data")
"""Default folder, relative to the current one."""
STORAGE: Final = "storage"
"""Name of the storage root in the folder of a local cluster."""
LOCAL_STORAGE: Final = LOCAL_DATA / STORAGE
