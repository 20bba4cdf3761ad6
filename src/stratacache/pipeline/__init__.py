"""The way of a request: plan, look up, fly once, relay, write back."""
