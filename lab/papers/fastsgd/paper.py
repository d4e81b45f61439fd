"""The paper's results on KDD12: K. Yang, L. Chen, Z. Zeng, Y. Gao, "FastSGD: A Fast Compressed SGD
Framework for Distributed Machine Learning" (arXiv 2112.04291), section 4, on 12 nodes of 24 cores
with links of 1 Gbit/s. Losses are named as `deltawire train linear` names them.

For figures, only the numbers in the paper's text are known."""

LOSSES = {"squared": "Linear", "logistic": "LR", "hinge": "SVM"}

# Figure 4: speed of epochs and size of messages relative to plain Adam, the maximum of three
# losses.
COMPONENT_SPEED = {"keys": 1.2, "logarithm": 4.0, "threshold": 7.9}
COMPONENT_SIZE = {"keys": 1.4, "threshold": 18720.0}

# Table 4: seconds of an epoch: gradients, encoding, decoding, communication, updates of the model.
SPLIT = {
    ("squared", "none"): (22, 0, 0, 84, 80),
    ("squared", "FastSGD"): (21, 0.05, 0.08, 6, 6),
    ("logistic", "none"): (23, 0, 0, 68, 65),
    ("logistic", "FastSGD"): (23, 0.05, 0.06, 4, 5),
    ("hinge", "none"): (21, 0, 0, 73, 64),
    ("hinge", "FastSGD"): (21, 0.06, 0.07, 5, 8),
}

# Tables 5 and 6: bits per key.
KEY_BITS = {"none": 32.0, "SketchML": 9.95, "FastSGD": 6.04}
KEY_BITS_BY_FLAG = {1: 8.65, 2: 6.04, 3: 7.06, 4: 12.27, 5: 14.78}

# Table 7: seconds to convergence.
CONVERGENCE = {
    "squared": {"FastSGD": 348, "none": 2969, "LogQuant": 2765, "SketchML": 2007, "Top-k": 1189},
    "logistic": {"FastSGD": 437, "none": 2638, "LogQuant": 2392, "SketchML": 1836, "Top-k": 970},
    "hinge": {"FastSGD": 331, "none": 2441, "LogQuant": 2550, "SketchML": 1871, "Top-k": 978},
}
