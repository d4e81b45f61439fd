"""A parameter server: ranks that own the model, and workers that compute its gradients."""
