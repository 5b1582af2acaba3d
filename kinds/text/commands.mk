# What its tests need besides.
APART += $(LAYER)/minilm
