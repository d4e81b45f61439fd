"""GComp: volume, deviations and times; what a cut does to weights; errors in a ring."""
