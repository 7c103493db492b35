"""A real cluster as its user sees it: kubectl, helm, and the product's own command in a pod."""
