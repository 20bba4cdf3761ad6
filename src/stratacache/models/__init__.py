"""The models of the semantic tier: embedders and the verifier, run beside the event loop."""
