"""Flower's quickstart, large crowds and hostile or killed clients, with deltawire's messages."""
