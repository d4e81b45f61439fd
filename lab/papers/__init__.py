"""The tables and figures of the papers that deltawire implements, run again."""
