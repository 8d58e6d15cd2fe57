"""SQL text: quoting, and rules about expressions."""
