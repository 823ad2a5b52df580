"""Commands about people: sign in, tenants, tokens, roles."""
