"""The parts of the windowed operator: one path in columns for what most windows are, one general path for the rest."""
