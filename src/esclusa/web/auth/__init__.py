"""Authentication of HTTP callers: API tokens, OIDC tokens and the middleware that checks them."""
