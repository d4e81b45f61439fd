"""Rules by which an optimizer steps tensors whose codec its own way does not suit."""
