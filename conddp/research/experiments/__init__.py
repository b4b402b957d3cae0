"""The paper's experiments: declared, measured, and compared with the printed numbers."""
