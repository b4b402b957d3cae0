"""The paper's experiments on the Criteo Sponsored Search Conversion Log."""
