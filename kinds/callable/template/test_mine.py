"""Without a server: .venv/bin/python -m unittest test_mine"""

import unittest
from pathlib import Path

from bundle_serving.callables import Instance, load


class Mine(unittest.TestCase):
    def test_it_counts_words(self):
        mine = Instance(load(Path(__file__).with_name("mine.py"))["mine"])
        self.assertEqual(mine.ask(text="one two three")["words"].tolist(), [3])
        self.assertEqual(mine.ask(text="")["words"].tolist(), [0])
