"""The paper's experiments, declared, measured and set beside its printed numbers: ``conddp reproduce``."""
