"""scikit-learn estimators: one censored classifier, and the whole procedure as a classifier."""
