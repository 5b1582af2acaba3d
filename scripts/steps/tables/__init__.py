"""Models of tables, such as scikit-learn's, XGBoost's and LightGBM's."""

# By what their files are called.
MAKERS = {".json": "XGBoost", ".ubj": "XGBoost", ".txt": "LightGBM", ".skops": "scikit-learn"}
INPUT = "input"  # of the graph
