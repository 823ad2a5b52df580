"""Commands about experiments: compare devices and parameters, tables and reports."""
