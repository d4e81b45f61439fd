"""Steps over slow links, compared with the ceiling: steps without any exchange."""
