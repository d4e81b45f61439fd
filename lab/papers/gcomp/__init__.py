"""GComp: what its cut does to weights, and the error that a ring adds up."""
