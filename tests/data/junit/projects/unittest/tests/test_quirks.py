import unittest


class TestQuirks(unittest.TestCase):
    def test_pass(self):
        pass

    def test_fail(self):
        print("printed \x1b[31mred\x1b[0m \x00")
        self.fail("control \x1b[31mred\x1b[0m \x00 ]]> & <b>")

    def test_error(self):
        raise ValueError("an exception is an error")

    @unittest.skip("not today")
    def test_skip(self):
        pass

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.expectedFailure
    def test_unexpected_success(self):
        pass

    def test_sub(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(i, 1)


class TestBrokenClass(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("class")

    def test_never(self):
        pass
