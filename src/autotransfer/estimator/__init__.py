"""scikit-learn estimators: a whole run as a classifier or regressor, and one network with a penalty."""
