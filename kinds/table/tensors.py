"""Models of tables, such as scikit-learn's, XGBoost's and LightGBM's."""

# By what their files are called.
MAKERS = {".json": "XGBoost", ".ubj": "XGBoost", ".txt": "LightGBM", ".skops": "scikit-learn"}
# Of what is served, as Triton's FIL backend calls them (its src/model.h).
INPUT, OUTPUT = "input__0", "output__0"
