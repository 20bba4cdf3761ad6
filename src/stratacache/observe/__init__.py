"""What operators see: metrics and counts."""
