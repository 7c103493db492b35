"""What identifies a cut, and its times."""
