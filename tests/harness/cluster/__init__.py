"""A real cluster: kubectl, helm, and the command of the product in a pod."""
