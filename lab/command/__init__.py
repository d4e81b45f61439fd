"""What every program here shares: options, exit status, paths, tables in Markdown."""
