"""GComp: how cutting mantissas affects weights, and how errors add up in a ring."""
