"""Quality of the semantic tier: guards, verifier, classifier, error bound, on labelled questions."""
