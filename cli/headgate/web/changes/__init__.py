"""Changes that a person asks for: a rule document is checked, then published as the command does it, unless somebody
changed the rule meanwhile."""
