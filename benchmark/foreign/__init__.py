"""Networks that were not made here: whether `make add-model` serves each as it is, or says why
not."""
