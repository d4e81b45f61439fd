"""Steps over slow links, beside the ceiling: steps without any exchange."""
