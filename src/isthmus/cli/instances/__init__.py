"""Commands over instances: interactive programs in the browser."""
