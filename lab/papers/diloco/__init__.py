"""DiLoCo compared with data-parallel training at equal tokens."""
