"""The memory of an app's processes: its use, its limit, and the warning before the system ends one of them."""
