"""The paper's model: geometric attention (Frank & Chmiela 2021)."""
