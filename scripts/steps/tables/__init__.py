"""Models of tables, such as scikit-learn's, XGBoost's and LightGBM's."""
