"""The loader for YAML: libyaml's, or PyYAML's own, which is slower, where PyYAML is built without libyaml."""

from __future__ import annotations

import yaml

#: A class of loaders without tags that make Python objects.
SAFE_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
